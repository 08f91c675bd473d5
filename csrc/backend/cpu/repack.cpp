#include "backend/cpu/repack.h"

#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/panel.h"

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

}  // namespace

template <Format f>
size_t panel_bytes_of(int64_t cols) {
  return panel_bytes(kLayout<f>, cols);
}

template <Format f>
void repack(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t cols, uint8_t* panel) {
  constexpr const PanelLayout& L = kLayout<f>;
  if (n_rows < kPanelRows || cols / L.block_weights % L.group) std::memset(panel, 0, panel_bytes(L, cols));
  walk<L>(panel, cols, [&](int64_t b, uint8_t* head, uint8_t* lines) {
    const uint8_t* from = rows + b * L.block_bytes;
    if constexpr (L.odd_bytes != 0)
      for (int r = 0; r < n_rows; r++)
        std::memcpy(head + r * L.odd_bytes, from + size_t(r) * row_bytes + L.odd_at, L.odd_bytes);
    for (int i = 0; i < L.words; i++) {
      for (int r = 0; r < n_rows; r++) {
        uint32_t v;
        std::memcpy(&v, from + size_t(r) * row_bytes + L.words_at + 4 * L.word[i], 4);
        if (i == L.bits_line) v = spread_bits(v);
        std::memcpy(lines + i * kLineBytes + 4 * r, &v, 4);
      }
    }
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
