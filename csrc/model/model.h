// A loaded model: numbers, architecture row, weights on a backend. Immutable after loading, but for the backend's
// scratch memory: it computes for one session at a time.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "base/fork.h"
#include "gguf/file.h"
#include "model/arch.h"
#include "model/hparams.h"
#include "model/rope.h"
#include "model/weights.h"

namespace pllm {

class Model {
 public:
  Model(std::shared_ptr<const gguf::File> file, std::unique_ptr<Backend> backend);

  const Hparams& hparams() const { return hparams_; }
  const Arch& arch() const { return *arch_; }
  const Weights& weights() const { return weights_; }
  const gguf::File& file() const { return *file_; }
  Backend& backend() const { return *backend_; }
  ForkMutex& turn() const { return turn_; }  // held while a step uses the backend
  KvShape kv_shape(KvTypes types) const {
    return {hparams_.n_layer, hparams_.n_head_kv, hparams_.head_dim_k, hparams_.head_dim_v, types};
  }
  // Longrope has other frequencies for sequences that may outgrow the first context trained. The context the model was
  // opened with decides, not the length so far: keys rotated one way do not fit queries rotated the other.
  const RopeFrequencies& rope_global(int n_ctx) const {
    const bool is_long = !weights_.rope_factors_long.empty() && n_ctx > hparams_.rope_scaling.n_ctx_orig;
    return is_long ? rope_long_ : rope_global_;
  }
  // Local (sliding-window) layers may rotate at another base (Hparams::rope_base_local).
  const RopeFrequencies& rope_local() const { return rope_local_; }

 private:
  mutable ForkMutex turn_;
  std::shared_ptr<const gguf::File> file_;  // embeddings may be read from it
  std::unique_ptr<Backend> backend_;
  Hparams hparams_;
  const Arch* arch_;
  Weights weights_;
  RopeFrequencies rope_global_, rope_long_, rope_local_;
};

}  // namespace pllm
