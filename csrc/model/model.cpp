#include "model/model.h"

#include <utility>

namespace pllm {

Model::Model(std::shared_ptr<const gguf::File> file, std::unique_ptr<Backend> backend)
    : file_(std::move(file)),
      backend_(std::move(backend)),
      hparams_(read_hparams(*file_)),
      arch_(&find_arch(hparams_.arch, {})),
      weights_(load_weights(*file_, *arch_, hparams_, *backend_)) {
  const Hparams& h = hparams_;
  rope_global_ = rope_frequencies(h.n_rot, h.rope_base, h.rope_scaling, weights_.rope_factors);
  rope_long_ = rope_frequencies(h.n_rot, h.rope_base, h.rope_scaling, weights_.rope_factors_long);
  rope_local_ = h.rope_base_local ? rope_frequencies(h.n_rot, h.rope_base_local, {}, {}) : rope_global_;
}

}  // namespace pllm
