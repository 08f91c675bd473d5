// The panel layout: 16 rows of a weight matrix, a permutation of the file's own bits that every level reads.
//
// A GGUF block is a number of 32-bit words, in some formats beside one or two odd bytes (its scale). Word i of 16 rows
// is one 64-byte line: row r in lane r, 4 consecutive bytes of the file in a lane. A panel is, for each group of blocks
//     [one line with the odd bytes of the group: block by block, 16 rows each]
//     for each block of the group: its lines, in the order in which the kernels read them
// so it is read strictly in address order, as large as the file (but for the last group's line). F16 and BF16 are the
// limit case of blocks of one weight and no words: a line holds two consecutive k of 16 rows.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/formats.h"

namespace pllm::cpu {

inline constexpr int kLineBytes = 64;
inline constexpr int kMaxWords = 52;

struct PanelLayout {
  int block_weights = 0;
  int block_bytes = 0;
  int words = 0;      // 32-bit words of a block
  int words_at = 0;   // their place in the file's block
  int odd_bytes = 0;  // bytes of a block that are in no word
  int odd_at = 0;
  int group = 1;                 // blocks whose odd bytes share a line
  int bits_line = -1;            // the line of 32 single bits, permuted: bit i of byte b belongs to k = 4i + b
  uint8_t word[kMaxWords] = {};  // word[i]: which word of the file's block line i holds
};

namespace detail {
// Q6_K: scales first, then for each 128 k the eight words of upper bits and the sixteen of nibbles.
constexpr int q6_k_word(int line) {
  if (line < 4) return 48 + line;
  const int half = (line - 4) / 24, i = (line - 4) % 24;
  return i < 8 ? 32 + half * 8 + i : half * 16 + i - 8;
}
}  // namespace detail

constexpr PanelLayout panel_layout(Format format) {
  PanelLayout p;
  p.block_weights = info(format).block_weights;
  p.block_bytes = info(format).block_bytes;
  p.odd_bytes = p.block_bytes % 4;
  p.words = p.block_bytes / 4;
  if (p.odd_bytes) p.group = kLineBytes / (16 * p.odd_bytes);
  const bool scale_last = format == Format::Q3_K || format == Format::Q6_K;
  p.odd_at = scale_last ? 4 * p.words : 0;
  p.words_at = scale_last ? 0 : p.odd_bytes;
  if (format == Format::Q5_0) p.bits_line = 0;
  if (format == Format::Q5_1) p.bits_line = 1;
  for (int i = 0; i < p.words; i++) {
    int word = i;
    if (format == Format::Q2_K) word = (i + 20) % 21;  // d, dmin | scales | codes
    if (format == Format::Q3_K) word = (i + 24) % 27;  // scales | third bits | codes
    if (format == Format::Q6_K) word = detail::q6_k_word(i);
    p.word[i] = uint8_t(word);
  }
  return p;
}

constexpr size_t panel_bytes(const PanelLayout& p, int64_t cols) {
  const int64_t blocks = cols / p.block_weights;
  const int64_t heads = p.odd_bytes ? (blocks + p.group - 1) / p.group : 0;
  return size_t(heads + blocks * p.words) * kLineBytes;
}

}  // namespace pllm::cpu
