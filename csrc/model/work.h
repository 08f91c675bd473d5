// What one token costs at the least: bytes to read and products to add up, counted from the weights.
#pragma once
#include "model/model.h"

namespace pllm {

struct Work {
  size_t bytes = 0;                       // of weights, as the backend keeps them
  int64_t int8_macs = 0, float_macs = 0;  // by what the weights' formats are multiplied with
};

Work layers_work(const Model& model);  // all layers for one token: of the experts those used
Work head_work(const Model& model);    // one row of logits

// Bytes of keys and values that a token reads which sees n_keys, itself among them.
size_t kv_bytes_read(const Model& model, KvTypes kv_types, int n_keys);

}  // namespace pllm
