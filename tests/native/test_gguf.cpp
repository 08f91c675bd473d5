// The reader against damaged files, under sanitizers: every mutation gives a file or an Error, nothing else.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "gguf/file.h"

using namespace pllm;
using Bytes = std::vector<uint8_t>;

namespace {

template <class T>
void put(Bytes& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}
void put(Bytes& out, const std::string& text) {
  put(out, uint64_t(text.size()));
  out.insert(out.end(), text.begin(), text.end());
}

// A whole file: scalars, a string, arrays (of strings, nested) and two F32 tensors.
Bytes small_file() {
  Bytes out = {'G', 'G', 'U', 'F'};
  put(out, uint32_t(3));
  put(out, uint64_t(2));
  put(out, uint64_t(4));
  put(out, std::string("general.architecture")), put(out, uint32_t(8)), put(out, std::string("llama"));
  put(out, std::string("general.alignment")), put(out, uint32_t(4)), put(out, uint32_t(32));
  put(out, std::string("names")), put(out, uint32_t(9)), put(out, uint32_t(8)), put(out, uint64_t(2));
  put(out, std::string("a")), put(out, std::string("bc"));
  put(out, std::string("nested")), put(out, uint32_t(9)), put(out, uint32_t(9)), put(out, uint64_t(1));
  put(out, uint32_t(6)), put(out, uint64_t(2)), put(out, 1.5f), put(out, -2.f);
  for (int t = 0; t < 2; t++) {
    put(out, std::string(t ? "second" : "first")), put(out, uint32_t(2)), put(out, uint64_t(8)), put(out, uint64_t(2));
    put(out, uint32_t(0)), put(out, uint64_t(64 * t));
  }
  while (out.size() % 32) out.push_back(0);
  for (int i = 0; i < 32; i++) put(out, float(i));
  return out;
}

enum class Outcome { opened, refused };

Outcome open(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
  try {
    const auto file = gguf::File::open(path);
    volatile uint8_t sink = 0;  // every byte a tensor claims is really there
    for (const gguf::Tensor& t : file->tensors())
      for (size_t i = 0; i < t.n_bytes; i++) sink = sink + t.data[i];
    return Outcome::opened;
  } catch (const Error& e) {
    CHECK(std::strlen(e.what()) > 0);
    return Outcome::refused;
  }
}

}  // namespace

int main() {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pyllamacpp-test-" + std::to_string(std::random_device{}()) + ".gguf"))
          .string();
  const Bytes good = small_file();
  CHECK(open(path, good) == Outcome::opened);
  for (size_t n = 0; n < good.size(); n++)
    CHECK(open(path, Bytes(good.begin(), good.begin() + long(n))) == Outcome::refused);

  std::mt19937 random(1);
  for (int round = 0; round < 6000; round++) {
    Bytes bad = good;
    for (unsigned k = 0; k <= random() % 3; k++) {
      static constexpr uint64_t extremes[] = {0, 1, 1u << 31, 1ull << 32, 1ull << 63, ~0ull, 9, 8};
      const size_t at = random() % (bad.size() - 8);
      if (random() % 2) {
        bad[at] = uint8_t(random());
      } else {
        std::memcpy(&bad[at], &extremes[random() % 8], 8);
      }
    }
    open(path, bad);
  }
  std::filesystem::remove(path);
  std::printf("%d failed\n", failures);
  return failures != 0;
}
