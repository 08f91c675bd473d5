#include "model/feed_forward.h"

namespace pllm {

void feed_forward(const Model& model, Buffers& buffers, const FeedForward& f, Mat in, Mat out) {
  Backend& be = model.backend();
  const ActivationFn fn = model.arch().activation;
  const Mat g = buffers.g.mat(in.rows, f.up->rows);
  if (f.gate) {
    const Mat u = buffers.u.mat(in.rows, f.up->rows);
    const Product gate_up[] = {{f.gate.get(), f.b_gate.get(), g}, {f.up.get(), f.b_up.get(), u}};
    be.matmul(in, gate_up);
    be.gate(fn, g, u);
  } else {
    const Product up[] = {{f.up.get(), f.b_up.get(), g}};
    be.matmul(in, up);
    be.activate(fn, g);
  }
  const Product down[] = {{f.down.get(), f.b_down.get(), out}};
  be.matmul(g, down);
}

}  // namespace pllm
