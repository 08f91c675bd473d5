#include "backend/cpu/repack.h"

#include <array>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"
#include "backend/cpu/simd/transpose.h"

namespace pllm::cpu {
namespace {

// Bit k goes to bit k / 2 of the half that k's parity names: the lowest bit of the index becomes its highest.
constexpr uint32_t unshuffle(uint32_t v) {
  constexpr uint32_t masks[] = {0x22222222, 0x0c0c0c0c, 0x00f000f0, 0x0000ff00};
  for (int i = 0; i < 4; i++) {
    const uint32_t t = (v ^ v >> (1 << i)) & masks[i];
    v ^= t ^ t << (1 << i);
  }
  return v;
}
// The five bits of the index turn by two for bits_line's order, by three more back.
constexpr uint32_t spread_bits(uint32_t v) { return unshuffle(unshuffle(v)); }
constexpr uint32_t gather_bits(uint32_t v) { return unshuffle(unshuffle(unshuffle(v))); }
static_assert(spread_bits(1u << 29) == 1u << (29 % 4 * 8 + 29 / 4) &&
              gather_bits(spread_bits(0x12345678)) == 0x12345678);

// Calls block(file block's index, its odd bytes' line part, its lines) for a whole row of blocks.
template <const PanelLayout& L, class Byte, class Fn>
void walk(Byte* panel, int64_t cols, Fn block) {
  Byte* head = nullptr;
  for (int64_t b = 0; b < cols / L.block_weights; b++, panel += L.words * kLineBytes) {
    if constexpr (L.odd_bytes != 0) {
      if (b % L.group == 0)
        head = panel, panel += kLineBytes;
      else
        head += kPanelRows * L.odd_bytes;
    }
    block(b, head, panel);
  }
}
template <Format f>
constexpr PanelLayout kLayout = panel_layout(f);

// `n` consecutive words of each row, as lines.
inline __attribute__((always_inline)) void put_lines(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t n,
                                                     uint8_t* lines) {
  int64_t i = 0;
  if (n_rows == kPanelRows) {
    for (; i + 4 <= n; i += 4)
      for (int r = 0; r < kPanelRows; r += 4)
        transpose_4x4(rows + size_t(r) * row_bytes + 4 * i, row_bytes, lines + i * kLineBytes + 4 * r, kLineBytes);
  }
  for (; i < n; i++)
    for (int r = 0; r < n_rows; r++)
      std::memcpy(lines + i * kLineBytes + 4 * r, rows + size_t(r) * row_bytes + 4 * i, 4);
}

void spread_line(uint8_t* line) {
  uint32_t v[kPanelRows];
  std::memcpy(v, line, sizeof v);
  for (uint32_t& bits : v) bits = spread_bits(bits);
  std::memcpy(line, v, sizeof v);
}

// A line of pairs (k, k + 1) becomes all rows' k, then all rows' k + 1.
void split_line(uint8_t* line) {
  uint32_t pairs[kPanelRows];
  uint16_t halves[2 * kPanelRows];
  std::memcpy(pairs, line, sizeof pairs);
  for (int r = 0; r < kPanelRows; r++) halves[r] = uint16_t(pairs[r]);
  for (int r = 0; r < kPanelRows; r++) halves[kPanelRows + r] = uint16_t(pairs[r] >> 16);
  std::memcpy(line, halves, sizeof halves);
}

// run[i]: as many lines from the i-th on are consecutive words of the file's block.
constexpr std::array<uint8_t, kMaxWords> runs_of(const PanelLayout& p) {
  std::array<uint8_t, kMaxWords> run{};
  for (int i = p.words - 1; i >= 0; i--)
    run[size_t(i)] = i + 1 < p.words && p.word[i + 1] == p.word[i] + 1 ? uint8_t(run[size_t(i) + 1] + 1) : 1;
  return run;
}
template <Format f>
constexpr std::array<uint8_t, kMaxWords> kRun = runs_of(kLayout<f>);

}  // namespace

template <Format f>
size_t panel_bytes_of(int64_t cols) {
  return panel_bytes(kLayout<f>, cols);
}

template <Format f>
void repack(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t cols, uint8_t* panel) {
  constexpr const PanelLayout& L = kLayout<f>;
  constexpr bool words_in_order = L.odd_bytes == 0 && kRun<f>[0] == L.words;  // of the whole row
  const int64_t blocks = cols / L.block_weights;
  if (n_rows < kPanelRows || blocks % L.group) std::memset(panel, 0, panel_bytes(L, cols));
  if constexpr (words_in_order) {
    put_lines(rows, row_bytes, n_rows, blocks * L.words, panel);
    if constexpr (L.bits_line >= 0)
      for (int64_t b = 0; b < blocks; b++) spread_line(panel + (b * L.words + L.bits_line) * kLineBytes);
    return;
  }
  if constexpr (L.words == 0 && L.odd_bytes == 2) {
    if (n_rows == kPanelRows && blocks % 2 == 0) {
      put_lines(rows, row_bytes, n_rows, blocks / 2, panel);
      for (int64_t i = 0; i < blocks / 2; i++) split_line(panel + i * kLineBytes);
      return;
    }
  }
  walk<L>(panel, cols, [&](int64_t b, uint8_t* head, uint8_t* lines) __attribute__((always_inline)) {
    const uint8_t* from = rows + b * L.block_bytes;
    if constexpr (L.odd_bytes != 0) {
      for (int r = 0; r < n_rows; r++)
        std::memcpy(head + r * L.odd_bytes, from + size_t(r) * row_bytes + L.odd_at, L.odd_bytes);
    }
    for (int i = 0; i < L.words; i += kRun<f>[size_t(i)])
      put_lines(from + L.words_at + 4 * L.word[i], row_bytes, n_rows, kRun<f>[size_t(i)], lines + i * kLineBytes);
    if constexpr (L.bits_line >= 0) spread_line(lines + L.bits_line * kLineBytes);
  });
}

template <Format f>
void unpack_row(const uint8_t* panel, int row, int64_t cols, uint8_t* blocks) {
  constexpr const PanelLayout& L = kLayout<f>;
  walk<L>(panel, cols, [&](int64_t b, const uint8_t* head, const uint8_t* lines) {
    uint8_t* to = blocks + b * L.block_bytes;
    if constexpr (L.odd_bytes != 0) std::memcpy(to + L.odd_at, head + row * L.odd_bytes, L.odd_bytes);
    for (int i = 0; i < L.words; i++) {
      uint32_t v;
      std::memcpy(&v, lines + i * kLineBytes + 4 * row, 4);
      if (i == L.bits_line) v = gather_bits(v);
      std::memcpy(to + L.words_at + 4 * L.word[i], &v, 4);
    }
  });
}

#define FORMAT(name, ...)                                                             \
  template size_t panel_bytes_of<Format::name>(int64_t);                              \
  template void repack<Format::name>(const uint8_t*, size_t, int, int64_t, uint8_t*); \
  template void unpack_row<Format::name>(const uint8_t*, int, int64_t, uint8_t*);
#include "quant/formats.def"
#undef FORMAT

}  // namespace pllm::cpu
