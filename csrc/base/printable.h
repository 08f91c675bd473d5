// Text out of a file in a message: one line, and nothing that a terminal would obey.
#pragma once
#include <string>
#include <string_view>

namespace pllm {

inline std::string printable(std::string_view text) {
  constexpr size_t kMost = 200;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < text.size() && i < kMost; i++) {
    const auto at = [&](size_t k) { return static_cast<unsigned char>(k < text.size() ? text[k] : 0); };
    const auto c1 = [&](size_t k) {  // control characters beyond ASCII, in UTF-8
      return at(k) == 0xc2 && at(k + 1) >= 0x80 && at(k + 1) < 0xa0;
    };
    const auto byte = at(i);
    if (byte >= 0x20 && byte != 0x7f && !c1(i) && (i == 0 || !c1(i - 1))) {
      out += text[i];
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return text.size() > kMost ? out + "…" : out;
}

}  // namespace pllm
