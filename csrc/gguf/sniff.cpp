#include "gguf/sniff.h"

#include <algorithm>
#include <cstring>
#include <regex>
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
constexpr const char* kOldGgml = "is an old GGML-family file, from before GGUF (August 2023)";
constexpr const char* kOldHint = "Get a .gguf file of this model, or convert the original model again.";
constexpr const char* kArchive = "is a compressed archive, not a GGUF file";
constexpr const char* kUnpack = "Unpack it and open the .gguf file inside.";
constexpr Magic kMagics[] = {
    {0, "version https://git-lfs.github.com/spec/"sv, "is a Git-LFS pointer, not the model it points to",
     "Run 'git lfs pull' in the repository, or download the file itself (huggingface-cli download)."},
    {0, "lmgg"sv, kOldGgml, kOldHint},
    {0, "fmgg"sv, kOldGgml, kOldHint},
    {0, "tjgg"sv, kOldGgml, kOldHint},
    {0, "algg"sv, "is an old GGLA adapter (LoRA), not a model", kOldHint},
    {0, "nsgg"sv, "is a saved llama.cpp session, not a model", "Open the model it was made with."},
    {0, "qsgg"sv, "is a saved llama.cpp sequence state, not a model", "Open the model it was made with."},
    {0, "FUGG"sv, "is a GGUF file with its bytes swapped", "Get the little-endian file of this model."},
    {0, "PK\x03\x04"sv,
     "is a zip archive: a PyTorch checkpoint (.bin, .pt, .pth) or a packed download, not a GGUF file", kConvert},
    {0, "\x80\x02"sv, "is a pickled PyTorch checkpoint, not a GGUF file", kConvert},
    {0, "\x1f\x8b"sv, kArchive, kUnpack},
    {0, "\x28\xb5\x2f\xfd"sv, kArchive, kUnpack},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     kArchive, kUnpack},
    {0, "7z\xbc\xaf\x27\x1c"sv, kArchive, kUnpack},
    {257, "ustar"sv, kArchive, kUnpack},
    {0, "MZqFpD"sv, "is a llamafile (a program with a model inside), not a GGUF file",
     "Run it, or get the plain .gguf file."},
    {0, "\x89HDF\r\n"sv, "is an HDF5 file, not a GGUF file", kConvert},
    {0, "\x93NUMPY"sv, "is a numpy array, not a GGUF file", kConvert},
};

std::string lower_start(std::string_view text, size_t n) {
  const size_t begin = std::min(text.find_first_not_of("\xef\xbb\xbf \t\r\n"), text.size());
  std::string start(text.substr(begin, n));
  for (char& c : start)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return start;
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
  if (text.empty()) return {"is empty (0 bytes)", kDownloadAgain};
  for (const Magic& magic : kMagics)
    if (text.size() > magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return {magic.what, magic.hint};
  const std::string start = lower_start(text, 16);
  if (start.starts_with("<!doctype html") || start.starts_with("<html") || start.starts_with("<head"))
    return {
        "is a web page (HTML), not a model",
        "The download saved a page instead of the file: use the direct link (huggingface.co/.../resolve/main/...)."};
  if (start.starts_with("<?xml")) return {"is an XML document, probably a server's error message", kDownloadAgain};
  if (is_safetensors(text)) return {"is a safetensors file, not a GGUF file", kConvert};
  if (start.starts_with("{"))
    return {"is JSON text, probably a server's error message or a config file", kDownloadAgain};
  if (text.find_first_not_of('\0') == std::string_view::npos)
    return {"begins with zeros: its download never finished", kDownloadAgain};
  return {"is not a GGUF file (it does not begin with 'GGUF')", kDownloadAgain};
}

std::optional<std::string> join_hint(const std::string& path) {
  // whole, separator, this piece's counter, tail
  static const std::regex kPieces[] = {
      std::regex(R"(^(.*?)(\.part)(\d+)(of\d+)$)"),  std::regex(R"(^(.*?)([.-]part-?)(\d+|[a-z]{1,2})()$)"),
      std::regex(R"(^(.*?)(-split-)([a-z]+)()$)"),   std::regex(R"(^(.*?)(\.)(\d{3})()$)"),
      std::regex(R"(^(.*\.gguf)(\.)([a-z]{2})()$)"),
  };
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 == 0: no directory
  std::smatch match;
  if (name.size() > 255) return std::nullopt;  // std::regex recurses over its input
  for (const std::regex& piece : kPieces) {
    if (!std::regex_match(name, match, piece)) continue;
    const std::string whole = match[1];
    return "Its name is that of one piece of a file cut for uploading. Get all pieces and join them in order: cat " +
           whole + match[2].str() + "*" + match[4].str() + " > " + whole + (whole.ends_with(".gguf") ? "" : ".gguf") +
           " (unpadded numbers beyond 9: name the pieces one by one).";
  }
  return std::nullopt;
}

}  // namespace pllm::gguf
