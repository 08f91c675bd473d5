// Promise 1 across machines: every kernel of every level that runs here, and a few whole models, on made-up inputs;
// a digest of each result's bits must be the one in digests.txt, which is the same file on x86 and on ARM.
//   test_digests                compares
//   test_digests --write FILE   writes the file anew, where a result was changed on purpose
//   test_digests --level        prints the level that this CPU chooses
// The baseline has no fused multiply-add, so there only what needs none is compared.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/select.h"
#include "backend/registry.h"
#include "base/half.h"
#include "base/isa.h"
#include "check.h"
#include "model/session.h"
#include "sampling/sampler.h"

using namespace pllm;

namespace {

using Floats = std::vector<float>;
using Digests = std::map<std::string, uint64_t>;

class Digest {
 public:
  void add(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 29;
  }
  void add(float v) {
    add(std::isnan(v) ? uint64_t{0x7fc00000} : std::bit_cast<uint32_t>(v));
  }  // NaNs carry no meaning
  void add(double v) { add(std::bit_cast<uint64_t>(v)); }
  template <class T>
  void add(const std::vector<T>& all) {
    for (const T& v : all) add(v);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

// ---- inputs: nothing of <random>, whose distributions differ between libraries
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int below(int n) { return int(next() % uint64_t(n)); }
  float unit() { return float(int(next() >> 40) - (1 << 23)) * 0x1p-23f; }  // [-1, 1)
  float value() { return unit() * std::bit_cast<float>(uint32_t(127 - 4 + below(8)) << 23); }
  Floats values(size_t n) {
    Floats x(n);
    for (float& v : x) v = value();
    return x;
  }

 private:
  uint64_t state_;
};

// Where the f16 scales of a format's block lie, or its E8M0 exponent.
struct Scales {
  std::vector<int> halves;
  int exponent = -1;
};
Scales scales_of(Format f) {
  switch (f) {
    case Format::Q4_0:
    case Format::Q5_0:
    case Format::Q8_0:
    case Format::IQ4_NL:
    case Format::IQ4_XS: return {{0}};
    case Format::Q4_1:
    case Format::Q5_1:
    case Format::Q4_K:
    case Format::Q5_K: return {{0, 2}};
    case Format::Q2_K: return {{80, 82}};
    case Format::Q3_K: return {{108}};
    case Format::Q6_K: return {{208}};
    case Format::MXFP4: return {{}, 0};
    case Format::F32:
    case Format::F16:
    case Format::BF16: break;
  }
  return {};
}

// fill: -1 for random codes, else the byte that all codes consist of
std::vector<uint8_t> blocks(Format f, int64_t n_blocks, Random& random, int fill) {
  const FormatInfo& i = info(f);
  std::vector<uint8_t> raw(size_t(n_blocks * i.block_bytes));
  const Scales scales = scales_of(f);
  for (int64_t b = 0; b < n_blocks; b++) {
    uint8_t* p = raw.data() + b * i.block_bytes;
    if (i.block_weights == 1) {
      const float v = random.value();
      const uint32_t bits = std::bit_cast<uint32_t>(v);
      const uint16_t half = f == Format::F16 ? float_to_half(v) : uint16_t(bits >> 16);
      std::memcpy(p, f == Format::F32 ? static_cast<const void*>(&bits) : &half, size_t(i.block_bytes));
      continue;
    }
    for (int k = 0; k < i.block_bytes; k++) p[k] = uint8_t(fill < 0 ? random.next() : uint64_t(fill));
    for (int at : scales.halves) {
      const uint16_t half = float_to_half(random.value() * (random.below(9) ? 0.01f : 1e-6f));  // some are denormals
      std::memcpy(p + at, &half, 2);
    }
    if (scales.exponent >= 0) p[scales.exponent] = uint8_t(random.below(9) ? 120 + random.below(12) : random.below(3));
  }
  return raw;
}

// Tokens with every code at its limit, of nothing, of very large and very small numbers, the others random.
Floats tokens(int n, int64_t cols, Random& random) {
  Floats x = random.values(size_t(n * cols));
  const float special[] = {1.f, -1.f, 0.f, 1e30f, 1e-30f};
  for (int t = 1; t < n; t += 3) {
    const float v = special[t / 3 % 5];
    for (int64_t k = 0; k < cols; k++) x[size_t(t * cols + k)] = t / 3 % 2 && k % 2 ? -v : v;
  }
  return x;
}

// ---- products
Floats product(const cpu::KernelTable& table, Format f, const std::vector<uint8_t>& raw, int rows, int64_t cols,
               const Floats& x) {
  const cpu::MatmulKernels& k = table.matmul[int(f)];
  const cpu::ActivationKernels& a = table.activation[int(info(f).activation)];
  const size_t row_bytes = raw.size() / size_t(rows), stride = k.panel_bytes(cols);
  const int n = int(x.size()) / int(cols), n_panels = (rows + cpu::kPanelRows - 1) / cpu::kPanelRows;
  std::vector<uint8_t> panels(size_t(n_panels) * stride), act(a.bytes(cols, n));
  for (int p = 0; p < n_panels; p++) {
    k.repack(raw.data() + size_t(p) * cpu::kPanelRows * row_bytes, row_bytes,
             std::min(cpu::kPanelRows, rows - p * cpu::kPanelRows), cols, panels.data() + size_t(p) * stride);
  }
  a.prepare(x.data(), size_t(cols), cols, n, 0, n, act.data());
  Floats y(size_t(n * rows));
  k.matmul(panels.data(), cols, rows, act.data(), n, y.data(), size_t(rows), 0, n_panels);
  return y;
}

void products(const cpu::KernelTable& table, Digests& out) {
  for (int i = 0; i < kFormatCount; i++) {
    const auto f = Format(i);
    const int weights = info(f).block_weights;
    Random random(uint64_t(i) + 1);
    Digest usual, extreme;
    for (const int64_t cols : {int64_t{weights == 1 ? 33 : 5 * weights}, int64_t{weights == 1 ? 512 : 2 * weights}}) {
      const auto raw = blocks(f, 35 * cols / weights, random, -1);
      for (int n : {1, 2, 3, 4, 6, 8, 12, 29}) usual.add(product(table, f, raw, 35, cols, tokens(n, cols, random)));
    }
    for (int fill : {0, 255, 127, 128, 0x77, 0x88}) {
      const int64_t cols = 3 * std::max(weights, 32);
      const auto raw = blocks(f, 16 * cols / weights, random, fill);
      for (int n : {1, 17}) extreme.add(product(table, f, raw, 16, cols, tokens(n, cols, random)));
    }
    out["matmul " + std::string(info(f).name)] = usual.value();
    out["matmul " + std::string(info(f).name) + " extreme"] = extreme.value();
  }
  Random random(99);
  const int64_t cols = 320;
  const Floats x = tokens(17, cols, random);
  Floats rest(x.size());
  for (int t = 0; t < 17; t++)
    table.activation[int(Activation::q8)].residual(x.data() + t * cols, cols, rest.data() + t * cols);
  Digest digest;
  digest.add(rest);
  out["activation residual"] = digest.value();
}

// ---- float kernels
constexpr int kSizes[] = {1, 7, 16, 33, 250};

Floats with_specials(size_t n, Random& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float special[] = {0.f,   -0.f, 1e-40f, -1e-40f, 88.7f,  -87.3f, 126.9f, -126.5f,       127.51f, 3.00000024f,
                           1e-6f, 30.f, -30.f,  1e30f,   -1e30f, kInf,   -kInf,  std::nanf(""), -1e-20f, 0.5f};
  Floats x = random.values(n);
  for (size_t i = 3; i < n; i += 4) x[i] = special[i / 4 % std::size(special)];
  return x;
}

void activations(const cpu::ElementwiseKernels& k, Digests& out) {
  const struct {
    const char* name;
    void (*run)(float*, int64_t);
  } unary[] = {{"silu", k.silu},       {"gelu_tanh", k.gelu_tanh}, {"gelu_erf", k.gelu_erf},
               {"sigmoid", k.sigmoid}, {"softmax", k.softmax},     {"exp2", k.exp2}};
  const struct {
    const char* name;
    void (*run)(float*, const float*, int64_t);
  } binary[] = {{"silu_gate", k.silu_gate},
                {"gelu_tanh_gate", k.gelu_tanh_gate},
                {"gelu_erf_gate", k.gelu_erf_gate},
                {"swiglu_oai_gate", k.swiglu_oai_gate},
                {"add", k.add}};
  for (const auto& op : unary) {
    Random random(7);
    Digest digest;
    for (int n : kSizes) {
      Floats usual = random.values(size_t(n)), special = with_specials(size_t(n), random);
      op.run(usual.data(), n);
      op.run(special.data(), n);
      digest.add(usual);
      digest.add(special);
    }
    out[op.name] = digest.value();
  }
  for (const auto& op : binary) {
    Random random(8);
    Digest digest;
    for (int n : kSizes) {
      Floats x = with_specials(size_t(n), random);
      const Floats y = random.values(size_t(n));
      op.run(x.data(), y.data(), n);
      digest.add(x);
    }
    out[op.name] = digest.value();
  }
}

void norms_and_rope(const cpu::ElementwiseKernels& k, Digests& out) {
  Random random(9);
  Digest rms, layer, rope, scaling;
  for (int n : kSizes) {
    const Floats x = random.values(size_t(n)), w = random.values(size_t(n)), b = random.values(size_t(n));
    Floats y(x.size());
    for (const float* weight : {w.data(), static_cast<const float*>(nullptr)}) {
      k.rms_norm(y.data(), x.data(), weight, n, 1e-6f);
      rms.add(y);
      k.layer_norm(y.data(), x.data(), weight, weight ? b.data() : nullptr, n, 1e-5f);
      layer.add(y);
    }
    for (bool interleaved : {false, true}) {
      y = x;
      k.rope(y.data(), w.data(), n / 2 * 2, interleaved);
      rope.add(y);
    }
    y = with_specials(x.size(), random);
    k.add_scaled(y.data(), x.data(), 0.3f, n);
    scaling.add(y);
    k.scale(y.data(), 1.7f, n);
    scaling.add(y);
    k.softcap(y.data(), 30.f, n);
    scaling.add(y);
  }
  out["rms_norm"] = rms.value();
  out["layer_norm"] = layer.value();
  out["rope"] = rope.value();
  out["scale, add_scaled, softcap"] = scaling.value();
}

// ---- attention: grouped heads, odd sizes, windows, soft-caps, sinks; steps of one, a few and many tokens
struct AttentionCase {
  int n_head, n_head_kv, dim_k, dim_v, window;
  float softcap;
  bool sinks;
};

uint64_t attend(const cpu::KernelTable& kernels, const AttentionCase& c, KvTypes types, Random& random) {
  constexpr int kPositions = 330;
  ThreadPool pool(2);
  cpu::Attention attention(kernels, pool);
  const cpu::KvHead head{c.dim_k, c.dim_v, types};
  const cpu::KvLayout kv{c.n_head_kv, head, 0};
  const size_t page_bytes = size_t(c.n_head_kv) * head.page_bytes();
  constexpr int kPages = (kPositions + cpu::kPageTokens - 1) / cpu::kPageTokens;
  Memory memory(size_t(kPages) * page_bytes);
  std::vector<uint8_t*> pages;
  for (int i = 0; i < kPages; i++) pages.push_back(memory.data() + size_t(i) * page_bytes);

  Floats k = random.values(size_t(kPositions * c.n_head_kv * c.dim_k)),
         v = random.values(size_t(kPositions * c.n_head_kv * c.dim_v));
  k[5] = 1e-7f, v[6] = -1e-7f, k[9] = 70000.f, v[9] = -65510.f;  // halves: denormal, clamped
  const Floats sinks = random.values(size_t(c.n_head));
  Digest digest;
  int pos = 0;
  for (int n : {200, 1, 3, 7, 1, 100, 1, 17}) {
    attention.store(kv, pages.data(), pos, n, k.data() + pos * c.n_head_kv * c.dim_k, size_t(c.n_head_kv * c.dim_k),
                    v.data() + pos * c.n_head_kv * c.dim_v, size_t(c.n_head_kv * c.dim_v));
    const Floats q = random.values(size_t(n * c.n_head * c.dim_k));
    Floats y(size_t(n * c.n_head * c.dim_v));
    attention.run({.q = q.data(),
                   .ldq = size_t(c.n_head * c.dim_k),
                   .out = y.data(),
                   .ldo = size_t(c.n_head * c.dim_v),
                   .n_head = c.n_head,
                   .kv = kv,
                   .pages = pages.data(),
                   .pos0 = pos,
                   .n = n,
                   .scale = 0.2f,
                   .softcap = c.softcap,
                   .window = c.window,
                   .sinks = c.sinks ? sinks.data() : nullptr});
    digest.add(y);
    pos += n;
  }
  for (const uint8_t* p = memory.data(); p < memory.data() + memory.size(); p++) digest.add(uint64_t{*p});
  return digest.value();
}

void attentions(const cpu::KernelTable& kernels, Digests& out) {
  const AttentionCase cases[] = {{3, 1, 64, 64, 0, 0, false},
                                 {4, 2, 40, 24, 37, 0, true},
                                 {2, 2, 128, 128, 0, 30, false},
                                 {1, 1, 8, 80, 70, 20, false},
                                 {7, 1, 16, 16, 0, 0, true}};
  int i = 0;
  for (const AttentionCase& c : cases) {
    Random random(uint64_t(50 + i));
    out["attention " + std::to_string(i++)] = attend(kernels, c, {}, random);
  }
  for (const KvTypeInfo& k : kKvTypes) {
    for (const KvTypeInfo& v : kKvTypes) {
      Digest all;
      for (const AttentionCase& c : cases) {
        Random random(60);
        all.add(attend(kernels, c, {*kv_type(k.name), *kv_type(v.name)}, random));
      }
      out["attention " + std::string(k.name) + " " + std::string(v.name)] = all.value();
    }
  }
}

// ---- sampling
void sampling(const std::string& level, Digests& out) {
  const Passes& p = passes(level);
  constexpr size_t kN = 3 * Passes::kBlock;
  Random random(11);
  Floats logits = random.values(kN);
  for (size_t i = 0; i < kN; i += 5) logits[i] = i % 2 ? -std::numeric_limits<float>::infinity() : logits[i] * 60;
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(kN), sums(kN / Passes::kBlock);
  std::vector<uint8_t> marks(kN);
  std::vector<uint16_t> buckets(kN);
  Digest loops, draws;
  for (double cold : {1.0, 0.37, 12.5}) {
    p.weigh(logits.data(), kN, max, cold, weights.data(), sums.data());
    loops.add(weights);
    loops.add(sums);
    loops.add(p.moment(logits.data(), weights.data(), kN, max, cold));
    p.assign(logits.data(), kN, max - 1.3, 1023 / 40.0, buckets.data());
    for (uint16_t b : buckets) loops.add(uint64_t{b});
    loops.add(p.mark(logits.data(), weights.data(), kN, {-1, 1}, {-2, 3}, marks.data()));
    for (uint8_t m : marks) loops.add(uint64_t{m});
  }
  out["sampling loops"] = loops.value();

  const auto n_vocab = int(kN) - 13;
  logits.resize(size_t(n_vocab));
  std::vector<int32_t> history(50);
  for (int32_t& id : history) id = random.below(n_vocab);
  for (int mode = 0; mode < 6; mode++) {
    SamplingParams params;
    params.samplers = step_names();
    params.seed = uint64_t(mode);
    params.repeat_penalty = 1.1f;
    if (mode == 1) params.typical_p = 0.6f;
    if (mode == 2) params.dynatemp_range = 0.7f, params.min_p = 0.01f;
    if (mode == 3) params.top_p = 0.8f, params.top_k = 40;
    if (mode == 4) params.mirostat_mode = 2, params.temperature = 3;
    if (mode == 5) params.dry_multiplier = 0.8f, params.top_n_sigma = 1.5f;
    Sampler sampler(params, n_vocab, level);
    for (uint64_t pos = 0; pos < 4; pos++) {
      const Draw draw{{history, 20}, pos, 0};
      for (const auto& [id, probability] : sampler.distribution(logits, draw))
        draws.add(uint64_t(id)), draws.add(probability);
      const Sampled sampled = sampler.sample(logits, draw, 3);
      draws.add(uint64_t(sampled.id)), draws.add(sampled.logprob);
    }
  }
  out["sampling"] = draws.value();
}

// ---- whole models
void models(const std::string& level, Digests& out) {
  for (const char* name : {"llama_yarn", "gemma2", "gpt2", "qwen3moe", "gpt-oss", "phi3_long"}) {
    const auto model = std::make_shared<const Model>(
        gguf::File::open(std::string(PYLLAMACPP_FIXTURES "/") + name + ".gguf"), make_backend({2, level}));
    const int n_vocab = model->hparams().n_vocab, n = std::min(48, model->hparams().n_ctx_train);
    std::vector<int32_t> ids(static_cast<size_t>(n));
    for (int i = 0; i < n; i++) ids[size_t(i)] = (i * 37 + 11) % n_vocab;
    Session session(model, n);
    Floats logits(size_t(n) * size_t(n_vocab));
    session.eval(ids, Output::logits, Session::Rows::all, logits.data());
    Digest digest;
    digest.add(logits);
    out[std::string("model ") + name] = digest.value();
  }
}

Digests digests_of(const std::string& level) {
  Digests out;
  sampling(level, out);
  if (level == "baseline") return out;
  const cpu::KernelTable& table = cpu::kernels(level);
  products(table, out);
  activations(*table.elementwise, out);
  norms_and_rope(*table.elementwise, out);
  attentions(table, out);
  models(level, out);
  return out;
}

Digests read(const std::string& path) {
  Digests all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) all[line.substr(space + 1)] = std::stoull(line.substr(0, space), nullptr, 16);
  }
  return all;
}

void write(const std::string& path) {
  std::ofstream file(path);
  char word[20];
  for (const auto& [name, digest] : digests_of(best_level().name)) {
    std::snprintf(word, sizeof word, "%016llx", static_cast<unsigned long long>(digest));
    file << word << ' ' << name << '\n';
  }
}

void compare(const Digests& expected) {
  CHECK(expected.size() > 50);
  for (const std::string& level : supported_levels()) {
    const Digests got = digests_of(level);
    for (const auto& [name, digest] : got) {
      const auto found = expected.find(name);
      if (found != expected.end() && found->second == digest) continue;
      std::printf("%s: other bits in: %s\n", level.c_str(), name.c_str());
      failures++;
    }
    if (level != "baseline") CHECK(got.size() == expected.size());
    std::printf("%s: %zu results compared\n", level.c_str(), got.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--level") {
    std::printf("%s\n", best_level().name.c_str());
    return 0;
  }
  if (argc == 3 && std::string(argv[1]) == "--write") {
    write(argv[2]);
    return 0;
  }
  compare(read(PYLLAMACPP_FIXTURES "/../native/digests.txt"));
  std::printf("%d failed\n", failures);
  return failures != 0;
}
