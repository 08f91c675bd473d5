// A GGUF file of any bytes: its header, hyper-parameters, plan and weights, then a few tokens evaluated.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "../native/read_header.h"
#include "backend/registry.h"
#include "bytes.h"
#include "model/memory_plan.h"
#include "model/session.h"

using namespace pllm;

namespace {

// Deleted at the end of the process.
const std::string& scratch() {
  struct File {
    std::string path =
        std::filesystem::temp_directory_path() / ("pyllamacpp-fuzz-" + std::to_string(std::random_device()()));
    ~File() { std::remove(path.c_str()); }
  };
  static const File file;
  return file.path;
}

void evaluate(const std::string& path) {
  const auto model = std::make_shared<const Model>(gguf::File::open(path), make_backend({1, {}}));
  plan_memory(model->file(), model->backend(), size_t{1} << 40, true, {});
  constexpr int kTokens = 5;
  Session session(model, kTokens);
  const int n_vocab = model->hparams().n_vocab;
  std::vector<int32_t> ids;
  for (int i = 0; i < kTokens; i++) ids.push_back(i % n_vocab);
  std::vector<float> logits(size_t(n_vocab) * kTokens);
  session.eval(ids, Output::logits, Session::Rows::all, logits.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!gguf::accepted({data, size})) return finished();
  std::ofstream(scratch(), std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
  try {
    evaluate(scratch());
  } catch (const Error& error) {
    CHECK(error.kind() != ErrorKind::internal && error.kind() != ErrorKind::io && *error.what() != 0);
  }
  return finished();
}
