#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pllm {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  std::string hint;
  if (error == ENOENT || error == ENOTDIR) hint = "Check the path; nothing with this name exists.";
  if (error == EACCES || error == EPERM) hint = "Your user may not read it: check the permissions (chmod +r, chown).";
  if (error == EIO) hint = "The disk or the network it lies on failed: copy the file elsewhere.";
  throw Error(ErrorKind::io, std::string("cannot ") + what + " '" + path + "': " + std::strerror(error), hint);
}

#if defined(__APPLE__)
const timespec& modified(const struct stat& st) { return st.st_mtimespec; }
#else
const timespec& modified(const struct stat& st) { return st.st_mtim; }
#endif

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

InputFile::InputFile(const std::string& path) : path_(path) {
  if (path.find('\0') != std::string::npos) throw Error(ErrorKind::io, "a file path cannot contain a zero byte");
  // O_NONBLOCK: opening a FIFO must not wait for its writer; it means nothing for a regular file.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) fail(path, "open", errno);
  struct stat st;
  if (fstat(fd.get(), &st) != 0) fail(path, "open", errno);
  if (S_ISDIR(st.st_mode))
    throw Error(ErrorKind::io, "'" + path + "' is a directory", "Give the path of a .gguf file inside it.");
  if (!S_ISREG(st.st_mode)) throw Error(ErrorKind::io, "'" + path + "' is not a regular file");
#if defined(POSIX_FADV_SEQUENTIAL)
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // loading goes front to back: read further ahead
#endif
  fd_ = fd.release();
  state_ = state();
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), state_(other.state_) {}

InputFile::State InputFile::state() const {
  struct stat st;
  if (fstat(fd_, &st) != 0) fail(path_, "read", errno);
  return {size_t(st.st_size), int64_t(modified(st).tv_sec), int64_t(modified(st).tv_nsec)};
}

void InputFile::read(uint64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), out.size(), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "read", errno);
    if (n == 0) fail_changed(true);
    offset += uint64_t(n);
    out = out.subspan(size_t(n));
  }
}

void InputFile::check_unchanged() const {
  const State now = state();
  if (now != state_) fail_changed(now.size < state_.size);
}

void InputFile::fail_changed(bool shorter) const {
  throw Error(ErrorKind::bad_file,
              "'" + path_ + (shorter ? "' has become shorter" : "' has been written to") + " since it was opened",
              "Something writes to the file: wait until it is complete, then open it again.");
}

bool file_exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace pllm
