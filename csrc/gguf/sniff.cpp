#include "gguf/sniff.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace pllm::gguf {
namespace {

using namespace std::string_view_literals;

constexpr const char* kDownloadAgain = "Download the .gguf file itself again and check its size.";
constexpr const char* kConvert = "Convert the model to GGUF, or look for a repository of it that has .gguf files.";

struct Magic {
  size_t offset;
  std::string_view bytes;
  const char* what;
  const char* hint;
};
constexpr const char* kOldGgml = "this is an old GGML-family file, from before GGUF (August 2023)";
constexpr const char* kOldHint = "Get a .gguf file of this model, or convert the original model again.";
constexpr const char* kArchive = "this is a compressed archive, not a GGUF file";
constexpr const char* kUnpack = "Unpack it and open the .gguf file inside.";
constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/spec/"sv, "this is a Git-LFS pointer, not the model it points to",
     "Run 'git lfs pull' in the repository, or download the file itself (hf download)."},
    {0, "lmgg"sv, kOldGgml, kOldHint},
    {0, "fmgg"sv, kOldGgml, kOldHint},
    {0, "tjgg"sv, kOldGgml, kOldHint},
    {0, "algg"sv, "this is an old GGLA adapter (LoRA), not a model", kOldHint},
    {0, "nsgg"sv, "this is a saved llama.cpp session, not a model", "Open the model it was made with."},
    {0, "qsgg"sv, "this is a saved llama.cpp sequence state, not a model", "Open the model it was made with."},
    {0, "FUGG"sv, "this is a GGUF file with its bytes swapped", "Get the little-endian file of this model."},
    {0, "PK\x03\x04"sv,
     "this is a zip archive: a PyTorch checkpoint (.bin, .pt, .pth) or a packed download, not a GGUF file", kConvert},
    {0, "\x80\x02"sv, "this is a pickled PyTorch checkpoint, not a GGUF file", kConvert},
    {0, "\x1f\x8b"sv, kArchive, kUnpack},
    {0, "\x28\xb5\x2f\xfd"sv, kArchive, kUnpack},
    {0, "\xfd\x37zXZ\0"sv, kArchive, kUnpack},
    {0, "7z\xbc\xaf\x27\x1c"sv, kArchive, kUnpack},
    {257, "ustar"sv, kArchive, kUnpack},
    {0, "MZqFpD"sv, "this is a llamafile (a program with a model inside), not a GGUF file",
     "Run it, or get the plain .gguf file."},
    {0, "\x89HDF\r\n"sv, "this is an HDF5 file, not a GGUF file", kConvert},
    {0, "\x93NUMPY"sv, "this is a numpy array, not a GGUF file", kConvert},
};

std::string lower_start(std::string_view text, size_t n) {
  const size_t begin = std::min(text.find_first_not_of("\xef\xbb\xbf \t\r\n"), text.size());
  std::string start(text.substr(begin, n));
  for (char& c : start)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return start;
}

bool all(std::string_view text, char first, char last) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [=](char c) { return c >= first && c <= last; });
}

// A little-endian header length, then the header, a JSON object.
bool is_safetensors(std::string_view text) {
  uint64_t header = 0;
  if (text.size() < 9) return false;
  std::memcpy(&header, text.data(), sizeof header);
  return header >= 2 && header <= (uint64_t(1) << 32) && text[8] == '{';
}

}  // namespace

bool has_magic(std::span<const uint8_t> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
}

Finding identify(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 4096));
  if (text.empty()) return {"the file is empty (0 bytes)", kDownloadAgain};
  for (const Magic& magic : kMagics)
    if (text.size() > magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return {magic.what, magic.hint};
  const std::string start = lower_start(text, 16);
  if (start.starts_with("<!doctype html") || start.starts_with("<html") || start.starts_with("<head"))
    return {
        "this is a web page (HTML), not a model",
        "The download saved a page instead of the file: use the direct link (huggingface.co/.../resolve/main/...)."};
  if (start.starts_with("<?xml")) return {"this is an XML document, probably a server's error message", kDownloadAgain};
  if (is_safetensors(text)) return {"this is a safetensors file, not a GGUF file", kConvert};
  if (start.starts_with("{"))
    return {"this is JSON text, probably a server's error message or a config file", kDownloadAgain};
  if (text.find_first_not_of('\0') == std::string_view::npos)
    return {"the file begins with zeros: its download never finished", kDownloadAgain};
  return {"this is not a GGUF file (it does not begin with 'GGUF')", kDownloadAgain};
}

std::optional<std::string> join_hint(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);  // npos + 1 == 0: no directory
  for (const std::string_view separator : {".part-"sv, "-part-"sv, ".part"sv, "-part"sv, "-split-"sv, "."sv}) {
    const size_t at = name.rfind(separator);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string whole(name.substr(0, at));
    std::string_view counter = name.substr(at + separator.size()), tail;
    if (const size_t of = counter.find("of"); of != std::string_view::npos && all(counter.substr(of + 2), '0', '9')) {
      tail = counter.substr(of);
      counter = counter.substr(0, of);
    }
    const bool digits = all(counter, '0', '9'), letters = counter.size() <= 2 && all(counter, 'a', 'z');
    const bool bare = separator == ".";  // file extensions are all around: only the customary counters
    if (bare ? !(digits && counter.size() == 3) && !(letters && counter.size() == 2 && whole.ends_with(".gguf"))
             : !digits && !letters)
      continue;
    return "Its name is that of one piece of a file cut for uploading. Get all pieces and join them in order: cat " +
           whole + std::string(separator) + "*" + std::string(tail) + " > " + whole +
           (whole.ends_with(".gguf") ? "" : ".gguf") + " (unpadded numbers beyond 9: name the pieces one by one).";
  }
  return std::nullopt;
}

}  // namespace pllm::gguf
