#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pllm {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  std::string hint;
  if (error == ENOENT || error == ENOTDIR) hint = "Check the path; nothing with this name exists.";
  if (error == EACCES || error == EPERM) hint = "Your user may not read it: check the permissions (chmod +r, chown).";
  if (error == ENOMEM) hint = "Close other programs, or raise the limit on memory.";
  throw Error(error == ENOMEM ? ErrorKind::out_of_memory : ErrorKind::io,
              "cannot open '" + path + "': " + std::strerror(error), hint);
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  if (path.find('\0') != std::string::npos) throw Error(ErrorKind::io, "a file path cannot contain a zero byte");
  // O_NONBLOCK: opening a FIFO must not wait for its writer; it means nothing for a regular file.
  const int raw = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (raw < 0) fail(path, errno);
  FileDescriptor fd(raw);
  struct stat st;
  if (fstat(fd.get(), &st) != 0) fail(path, errno);
  if (S_ISDIR(st.st_mode))
    throw Error(ErrorKind::io, "'" + path + "' is a directory", "Give the path of a .gguf file inside it.");
  if (!S_ISREG(st.st_mode)) throw Error(ErrorKind::io, "'" + path + "' is not a regular file");
  if (st.st_size == 0) return;
  const size_t size = size_t(st.st_size);
  void* map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) fail(path, errno);
  madvise(map, size, MADV_SEQUENTIAL);  // loading walks the file front to back: read further ahead on a cold cache
  bytes_ = {static_cast<const uint8_t*>(map), size};
  fd_ = fd.release();
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

void MappedFile::check_size() const {
  struct stat st;
  if (bytes_.empty() || (fstat(fd_, &st) == 0 && size_t(st.st_size) >= bytes_.size())) return;
  throw Error(ErrorKind::io, "'" + path_ + "' has become shorter since it was opened",
              "Something writes to the file: wait until it is complete, then open it again.");
}

void MappedFile::release(const uint8_t* data, size_t n_bytes) const {
  const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (uintptr_t(data) + page - 1) & ~(page - 1);
  const uintptr_t end = (uintptr_t(data) + n_bytes) & ~(page - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool file_exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace pllm
