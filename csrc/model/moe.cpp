// Mixture of experts: the rows of an expert are gathered and multiplied together, whichever tokens they belong to. Each
// row's products are its own, and a token adds up its experts from the best down: who else shares them never shows.
#include <algorithm>
#include <numeric>

#include "model/feed_forward.h"

namespace pllm {
namespace {

// The n_used largest logits of each row into b.chosen, the best first; of equal ones the lower id.
void choose(ExpertBuffers& b, Mat logits, int n_used) {
  b.chosen.clear();
  for (int64_t i = 0; i < logits.rows; i++) {
    const float* row = logits.row(i);
    const auto taken = b.chosen.size();
    for (int j = 0; j < n_used; j++) {
      int32_t best = -1;
      for (int32_t e = 0; e < logits.cols; e++) {
        if (std::find(b.chosen.begin() + int64_t(taken), b.chosen.end(), e) != b.chosen.end()) continue;
        if (best < 0 || row[e] > row[best]) best = e;
      }
      b.chosen.push_back(best);
    }
  }
}

// Softmax of the chosen experts' logits, or their part of the softmax of all. factors: (n, n_used).
void weigh(const Model& model, const ExpertBuffers& b, Mat logits, Mat factors) {
  const bool normed = model.hparams().normed_expert_weights;
  if (!normed) model.backend().softmax(logits);
  for (int64_t i = 0; i < factors.rows; i++)
    for (int64_t j = 0; j < factors.cols; j++)
      factors.row(i)[j] = logits.row(i)[b.chosen[size_t(i * factors.cols + j)]];
  if (normed) model.backend().softmax(factors);
}

// Fills first, token and slot: an expert's slots in the order of their tokens.
void assign_slots(ExpertBuffers& b, int64_t n, int n_expert, int n_used, int64_t slots_a_row) {
  b.first.assign(size_t(n_expert) + 1, 0);
  for (const int32_t e : b.chosen) b.first[size_t(e) + 1]++;
  std::partial_sum(b.first.begin(), b.first.end(), b.first.begin());
  std::vector<int32_t> next(b.first.begin(), b.first.end() - 1);
  b.token.resize(b.chosen.size());
  b.slot.resize(size_t(n * slots_a_row));
  for (int64_t i = 0; i < n; i++) {
    for (int j = 0; j < n_used; j++) {
      const int32_t s = next[size_t(b.chosen[size_t(i * n_used + j)])]++;
      b.token[size_t(s)] = int32_t(i);
      b.slot[size_t(i * slots_a_row + j)] = s;
    }
    if (slots_a_row > n_used) b.slot[size_t(i * slots_a_row + n_used)] = int32_t(int64_t(b.chosen.size()) + i);
  }
}

// One product a weight for each expert with rows: products(expert, its slots [first, first + n)) adds its own.
template <class Fn>
void for_experts(Backend& be, ExpertBuffers& b, const Experts& experts, Mat in, int per_expert, Fn&& products) {
  b.products.clear();
  b.groups.clear();
  b.products.reserve(experts.by_id.size() * size_t(per_expert));  // groups point into it
  for (size_t e = 0; e < experts.by_id.size(); e++) {
    const int64_t first = b.first[e], n = b.first[e + 1] - first;
    if (n == 0) continue;
    const size_t begin = b.products.size();
    products(experts.by_id[e], first, n);
    b.groups.push_back({in.rows_from(first, n), {b.products.data() + begin, b.products.size() - begin}});
  }
  be.matmul(b.groups);
}

}  // namespace

void expert_feed_forward(const Model& model, Buffers& buffers, const Experts& experts, Mat in, Mat out) {
  const Hparams& p = model.hparams();
  Backend& be = model.backend();
  ExpertBuffers& b = buffers.experts;
  const int64_t n = in.rows, n_slots = n * p.n_expert_used;
  const bool has_shared = experts.shared.up != nullptr;

  const Mat logits = b.logits.mat(n, p.n_expert);
  const Mat factors = b.factors.mat(n, p.n_expert_used + has_shared);
  const Product router[] = {{experts.router.get(), experts.b_router.get(), logits}};
  be.matmul(in, router);
  choose(b, logits, p.n_expert_used);
  weigh(model, b, logits, factors.cols_from(0, p.n_expert_used));
  assign_slots(b, n, p.n_expert, p.n_expert_used, factors.cols);

  const Mat x = b.x.mat(n_slots, p.n_embd), y = b.y.mat(n_slots + (has_shared ? n : 0), p.n_embd);
  const Mat g = b.g.mat(n_slots, p.n_ff_expert), u = b.u.mat(n_slots, p.n_ff_expert);
  be.copy_rows(x, in, b.token);
  for_experts(be, b, experts, x, 2, [&](const FeedForward& f, int64_t first, int64_t count) {
    b.products.push_back({f.gate.get(), f.b_gate.get(), g.rows_from(first, count)});
    b.products.push_back({f.up.get(), f.b_up.get(), u.rows_from(first, count)});
  });
  be.gate(model.arch().activation, g, u);
  for_experts(be, b, experts, g, 1, [&](const FeedForward& f, int64_t first, int64_t count) {
    b.products.push_back({f.down.get(), f.b_down.get(), y.rows_from(first, count)});
  });
  if (has_shared) {
    const Mat share = factors.cols_from(p.n_expert_used, 1);
    feed_forward(model, buffers, experts.shared, in, y.rows_from(n_slots, n));
    if (experts.shared_router) {
      const Product gate[] = {{experts.shared_router.get(), nullptr, share}};
      be.matmul(in, gate);
      be.activate(ActivationFn::sigmoid, share);
    } else {
      for (int64_t i = 0; i < n; i++) *share.row(i) = 1;
    }
  }
  be.mix_rows(out, y, b.slot, factors);
}

}  // namespace pllm
