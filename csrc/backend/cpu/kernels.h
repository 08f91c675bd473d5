// What one instruction-set level offers. Each isa_<level>.cpp fills one KernelTable from the same kernel source.
//
// Pointers in the table are the only way into code compiled with special flags; these headers hold no code at all.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/kv_type.h"
#include "quant/formats.h"

namespace pllm::cpu {

inline constexpr int kPanelRows = 16;

// Products with one weight format. A panel is 16 rows of weights, transposed (see formats.inl.h); `cols` is a multiple
// of the format's block. Panels follow each other at panel_bytes(cols); rows past the last one are zero.
struct MatmulKernels {
  size_t (*panel_bytes)(int64_t cols);
  // rows: n_rows <= 16 rows of the file's blocks, row_bytes apart -> one panel
  void (*repack)(const uint8_t* rows, size_t row_bytes, int n_rows, int64_t cols, uint8_t* panel);
  // the inverse for one row: panel -> the file's own blocks, cols / block_weights * block_bytes bytes
  void (*unpack_row)(const uint8_t* panel, int row, int64_t cols, uint8_t* blocks);
  // y[t * ldy + r] = sum over k of w[r][k] x[t][k], for rows [16 * panel0, min(16 * panel1, n_rows)) and all n tokens.
  // act: n tokens prepared by this format's ActivationKernels. Writes no element outside those rows.
  void (*matmul)(const uint8_t* panels, int64_t cols, int64_t n_rows, const uint8_t* act, int n, float* y, size_t ldy,
                 int64_t panel0, int64_t panel1);
};

// Activations as the products read them: (tile, block, token in the tile).
struct ActivationKernels {
  size_t (*bytes)(int64_t cols, int n);
  // x[t * ldx + k], tokens [t0, t1) of n -> their places in act; calls for different tokens may run in parallel
  void (*prepare)(const float* x, size_t ldx, int64_t cols, int n, int t0, int t1, uint8_t* act);
  // r = x less what prepare() makes of it, (cols); null where it takes x as it is
  void (*residual)(const float* x, int64_t cols, float* r);
};

// Rows of n contiguous floats. In-place is allowed where x and y are the same row; a partial overlap is not.
struct ElementwiseKernels {
  void (*rms_norm)(float* y, const float* x, const float* w, int64_t n, float eps);  // w may be null: all ones
  void (*layer_norm)(float* y, const float* x, const float* w, const float* b, int64_t n,
                     float eps);  // w, b may be null
  // One head, in place: turns pairs (i, i + n_rot / 2), or (2 i, 2 i + 1) if interleaved, of the first n_rot (even)
  // elements. cos_sin: (n_rot / 2, 2).
  void (*rope)(float* x, const float* cos_sin, int n_rot, bool interleaved);
  void (*silu_gate)(float* g, const float* u, int64_t n);        // g = silu(g) u
  void (*gelu_tanh_gate)(float* g, const float* u, int64_t n);   // g = gelu_tanh(g) u
  void (*gelu_erf_gate)(float* g, const float* u, int64_t n);    // g = gelu_erf(g) u
  void (*swiglu_oai_gate)(float* g, const float* u, int64_t n);  // ActivationFn::swiglu_oai
  void (*silu)(float* x, int64_t n);
  void (*gelu_tanh)(float* x, int64_t n);  // the tanh approximation
  void (*gelu_erf)(float* x, int64_t n);   // the exact one
  void (*sigmoid)(float* x, int64_t n);
  void (*softmax)(float* x, int64_t n);
  void (*exp2)(float* x, int64_t n);                                 // attention's own: exactly 0 below -64
  void (*add)(float* x, const float* y, int64_t n);                  // x += y
  void (*add_scaled)(float* x, const float* y, float s, int64_t n);  // x += s y
  void (*scale)(float* x, float s, int64_t n);                       // x *= s
  void (*softcap)(float* x, float cap, int64_t n);                   // x = cap tanh(x / cap)
};

inline constexpr int kPageTokens = 64;  // positions of one KV page
// Positions of one softmax chunk, counted from position 0: part of the order of sums, so part of every result's bits.
inline constexpr int kChunkTokens = 256;

// Rows against the keys or the values of one head in one page.
struct PageRows {
  const uint8_t* page;  // where that head's keys or values begin
  int dim;              // of the keys; of the values round_up(head_dim_v, 16)
  int n_rows;
  const uint8_t* next;  // what is read after this page, or null
  float* scratch;       // 64 max(head_dim_k, round_up(head_dim_v, 16)), 64-byte aligned
};

// Keys of one KV type (attention_tile.inl.h has the layout).
struct KeyKernels {
  // Token t of a page: k (dim), or null for a token that is not all numbers: its scores are NaN. What is larger than
  // the type can say is clamped.
  void (*store)(uint8_t* keys, int t, int dim, const float* k);
  void (*prepare)(float* q, int dim);  // a query (dim), in place, as scores() reads it; at least 8 dims
  // scores[r * 256 + t] = q[r] . key[t] for the 64 tokens t of a page. q: (n_rows, dim), prepared
  void (*scores)(const PageRows& a, const float* q, float* scores);
};

// Values of one KV type.
struct ValueKernels {
  // Token t of a page: v (head_dim_v), or null for zeros.
  void (*store)(uint8_t* values, int t, int head_dim_v, const float* v);
  // acc[r * dim + d] += sum over t of p[r * 256 + t] value[t][d] for the 64 tokens t of a page; p >= 0
  void (*add)(const PageRows& a, const float* p, float* acc);
};

// Query rows of one KV head against one chunk of its keys. Results: the largest score, the sum of p = 2^(score - max)
// and the sum of p v for every row; a row that sees no key of the chunk gets sum 0.
struct AttentionChunk {
  const KeyKernels& keys;
  const ValueKernels& values;
  int head_dim_k, head_dim_v;
  const uint8_t* const* pages;  // pages[i] + keys_at: this head's keys of positions [64 i, 64 i + 64); its values
  size_t keys_at, values_at;    // likewise
  int chunk;                    // positions [256 chunk, 256 chunk + 256); some row sees some of them
  const uint8_t* next;          // what the caller reads after this chunk, or null
  int n_rows;
  const float* q;  // (n_rows, head_dim_k), times scale log2(e), or times scale / softcap where that is not 0; prepared
  const int* pos;  // (n_rows), ascending; row r sees the keys at (pos[r] - window, pos[r]]
  int window;      // at least 1
  float softcap;   // 0: none
  float* scores;   // scratch (n_rows, 256)
  float* page;     // scratch, as PageRows has it
  float *max, *sum;  // out (n_rows)
  float* acc;        // out (n_rows, round_up(head_dim_v, 16))
};

struct AttentionKernels {
  bool (*all_finite)(const float* x, int n);
  void (*chunk)(const AttentionChunk& chunk);
  // Folds a chunk's results into running ones (max -inf, sum 0, acc 0 before the first); call in ascending order.
  void (*merge)(int n_rows, int head_dim_v, const float* max, const float* sum, const float* acc, float* total_max,
                float* total_sum, float* total_acc);
  void (*finish)(int head_dim_v, float total_sum, const float* total_acc, float* out);  // out = acc / sum
};

// KV types that are multiplied as floats, and those that are multiplied as integers.
struct FloatKvKernels {
  KeyKernels keys_f16, keys_bf16, keys_f32;
  ValueKernels values_f16, values_bf16, values_f32;
};
struct CodeKvKernels {
  KeyKernels keys_i16, keys_q8_0;
  ValueKernels values_i16, values_q8_0;
};

// Loops that measure the machine (limits.h): they do one thing and nothing else.
struct ReadPattern {
  const char* name;
  uint32_t (*sum)(const uint8_t* p, size_t bytes);  // of all int32 of p; bytes: a multiple of kReadGrain
};
inline constexpr size_t kReadGrain = 4096;
inline constexpr int kReadPatterns = 5;
struct Peak {
  uint64_t (*multiply)(int rounds);  // returns the products it has added up: rounds x macs. null: the level has none
  int macs;                          // of a round
};
inline constexpr int kMaxRounds = 1 << 20;  // sums stay exact
struct LimitKernels {
  ReadPattern read[kReadPatterns];
  Peak int8, f32;
};

struct KernelTable {
  const char* level;                               // its name in base/isa.h
  MatmulKernels matmul[kFormatCount];              // by Format
  ActivationKernels activation[kActivationCount];  // by Activation
  // Pointers, because the tables live in other objects: copying one at load would run its object's code on a CPU that
  // may lack the instructions.
  const ElementwiseKernels* elementwise;
  const AttentionKernels* attention;
  const KeyKernels* keys[kKvTypeCount];      // by KvType
  const ValueKernels* values[kKvTypeCount];  // by KvType
  LimitKernels limits;
};

// Levels that differ only in integer products share these: IsaLevel::floats.
extern const ElementwiseKernels kBaselineElementwise, kAvx2Elementwise, kAvx512Elementwise, kNeonElementwise;
extern const AttentionKernels kBaselineAttention, kAvx2Attention, kAvx512Attention, kNeonAttention;
extern const FloatKvKernels kBaselineFloatKv, kAvx2FloatKv, kAvx512FloatKv, kNeonFloatKv;
// One for each way of multiplying pairs of int16.
extern const CodeKvKernels kBaselineCodeKv, kAvx2CodeKv, kAvxVnniCodeKv, kAvx512CodeKv, kAvx512VnniCodeKv, kNeonCodeKv;

}  // namespace pllm::cpu
