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
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // control characters beyond ASCII, in UTF-8
    if (byte >= 0x20 && byte != 0x7f && !c1) {
      out += text[i];
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return text.size() > kMost ? out + "…" : out;
}

}  // namespace pllm
