// The GGUF parser on mutated files in exactly sized heap buffers, where a sanitizer sees every byte read too far; and
// checked sizes. What the reader says about files is tested from Python.
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/checked.h"
#include "check.h"
#include "gguf/spm_merges.h"
#include "read_header.h"

using namespace pllm;
using namespace pllm::gguf;

static void checked_sizes() {
  constexpr uint64_t max = std::numeric_limits<uint64_t>::max();
  CHECK((CheckedSize(max - 1) + 1).value() == max);
  CHECK(!(CheckedSize(max) + 1).value());
  CHECK((CheckedSize(1ull << 32) * ((1ull << 32) - 1)).value() == max - 0xffffffff);
  CHECK(!(CheckedSize(1ull << 32) * (1ull << 32)).value());
  CHECK((CheckedSize(max) * 0).value() == 0);
  CHECK((CheckedSize(33).align_up(32)).value() == 64);
  CHECK((CheckedSize(64).align_up(32)).value() == 64);
  CHECK(!CheckedSize(max - 30).align_up(32).value());
  CHECK(!(CheckedSize(max) * 2 * 0 + 1).fits(max));  // no way back from an overflow
  CHECK(CheckedSize(5).fits(5) && !CheckedSize(6).fits(5));
}

namespace {

struct Writer {
  std::string data;
  template <class T>
  Writer& put(T value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& text(const std::string& s) {
    put(uint64_t(s.size()));
    data += s;
    return *this;
  }
  Writer& key(const std::string& name, ValueType type) { return text(name).put(uint32_t(type)); }
  Writer& array(ValueType type, uint64_t count) { return put(uint32_t(type)).put(count); }
};

std::string sample() {
  Writer w;
  w.data = "GGUF";
  w.put(3u).put(uint64_t(2)).put(uint64_t(7));
  w.key("general.alignment", ValueType::u32).put(32u);
  w.key("n", ValueType::i16).put(int16_t(-3));
  w.key("s", ValueType::string).text("text");
  w.key("b", ValueType::array).array(ValueType::boolean, 2).put(uint16_t(1));
  w.key("f", ValueType::array).array(ValueType::f32, 2).put(1.0f).put(2.0f);
  w.key("t", ValueType::array).array(ValueType::string, 2).text("a").text("");
  w.key("a", ValueType::array).array(ValueType::array, 2).array(ValueType::u64, 1).put(uint64_t(1));
  w.array(ValueType::string, 1).text("x");
  w.text("x").put(2u).put(uint64_t(32)).put(uint64_t(2)).put(2u).put(uint64_t(0));
  w.text("y").put(1u).put(uint64_t(3)).put(0u).put(uint64_t(64));
  w.data.resize((w.data.size() + 31) / 32 * 32 + 64 + 12);
  return w.data;
}

bool try_file(const std::string& content) {
  return accepted({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
}

std::string mutated(const std::string& original, std::mt19937& random) {
  const auto below = [&](size_t n) { return size_t(random() % n); };
  static const uint64_t kOdd[] = {0, 1, 31, 32, 1u << 31, 1ull << 32, 1ull << 61, 1ull << 63, ~31ull, ~0ull};
  std::string data = original;
  for (size_t n = 1 + below(3); n > 0 && data.size() > 16; n--) {
    const size_t at = below(data.size() - 8);
    switch (below(5)) {
      case 0: data[at] = char(random()); break;
      case 1: std::memcpy(&data[at], &kOdd[below(std::size(kOdd))], below(2) ? 8 : 4); break;
      case 2: data.erase(at, 1 + below(8)); break;
      case 3: data.insert(at, data, below(data.size()), 1 + below(16)); break;
      case 4: data.resize(below(data.size())); break;
    }
  }
  return data;
}

}  // namespace

static void mutated_files(int n) {
  const std::string original = sample();
  CHECK(try_file(original));
  for (size_t cut = 0; cut < original.size(); cut++) CHECK(!try_file(original.substr(0, cut)));
  std::mt19937 random(1);
  int accepted = 0;
  for (int i = 0; i < n; i++) accepted += try_file(mutated(original, random));
  CHECK(accepted > n / 100 && accepted < n / 2);
}

static void other_files_and_names(int n) {
  std::mt19937 random(2);
  const std::string alphabet = "gGuUfFpPart-.split0123456789of/\n<{ ";
  for (int i = 0; i < n; i++) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = random() % 8 ? alphabet[random() % alphabet.size()] : char(random());
    const std::vector<uint8_t> exact(text.begin(), text.end());
    CHECK(!identify(exact).hint.empty());
    join_hint(text);
    const auto name = parse_shard_name(text + (random() % 2 ? "-00001-of-00003.gguf" : ""));
    if (name) CHECK(shard_path(name->prefix, name->number, name->count).starts_with(text.substr(0, 1)));
  }
}

static void merges_of_random_vocabularies(int n) {
  std::mt19937 random(3);
  for (int i = 0; i < n; i++) {
    std::vector<std::string> storage(random() % 40);
    for (std::string& token : storage) {
      token.resize(random() % 6);
      for (char& c : token) c = "ab\xc3\xa4\x80\xff"[random() % 6];
    }
    std::vector<std::string_view> tokens(storage.begin(), storage.end());
    const std::vector<float> scores(tokens.size(), 1);
    const std::vector<int32_t> types(tokens.size(), 1);
    for (const Merge& merge : spm_merges(tokens, scores, types)) {
      const std::string whole = storage[merge.left] + storage[merge.right];
      bool found = false;
      for (const std::string& token : storage) found |= token == whole;
      CHECK(found && !storage[merge.left].empty() && !storage[merge.right].empty());
    }
  }
}

// The argument multiplies the number of random cases.
int main(int argc, char** argv) {
  const int effort = argc > 1 ? std::atoi(argv[1]) : 1;
  checked_sizes();
  mutated_files(20000 * effort);
  other_files_and_names(2000 * effort);
  merges_of_random_vocabularies(500 * effort);
  if (failures == 0) std::printf("ok (%llu)\n", static_cast<unsigned long long>(sink));
  return failures != 0;
}
