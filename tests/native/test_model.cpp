// Every architecture's fixture loaded and evaluated on every level: for the sanitizers, which the tests in Python run
// without. Two sessions of one model at once, and files with damaged bytes.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/registry.h"
#include "base/error.h"
#include "base/isa.h"
#include "check.h"
#include "model/memory_plan.h"
#include "model/session.h"

using namespace pllm;
namespace fs = std::filesystem;

static std::shared_ptr<const Model> load(const std::string& path, int n_threads, const std::string& level) {
  return std::make_shared<const Model>(gguf::File::open(path), make_backend({n_threads, level}));
}

static std::vector<int32_t> some_tokens(const Model& model, int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; i++) ids.push_back(int32_t((i * 37 + 11) % model.hparams().n_vocab));
  return ids;
}

static std::vector<float> logits(Session& session, std::span<const int32_t> ids) {
  std::vector<float> out(ids.size() * size_t(session.model().hparams().n_vocab));
  session.eval(ids, Output::logits, Session::Rows::all, out.data());
  return out;
}

static std::vector<fs::path> fixtures() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(PYLLAMACPP_FIXTURES))
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  CHECK(!paths.empty());
  return paths;
}

static void every_fixture_on_every_level(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths) {
    for (const std::string& level : supported_levels()) {
      const auto model = load(path, 2, level);
      const int n_ctx = std::min(80, model->hparams().n_ctx_train), n = (n_ctx - 10) / 7 * 7;
      const auto ids = some_tokens(*model, n);
      const std::span<const int32_t> all(ids);
      Session whole(model, n_ctx), parts(model, n_ctx);
      const auto expected = logits(whole, all);
      std::vector<float> got;
      for (size_t i = 0; i < ids.size(); i += 7) {
        const auto part = logits(parts, all.subspan(i, 7));
        got.insert(got.end(), part.begin(), part.end());
      }
      CHECK(got == expected);
      whole.truncate(33);
      CHECK(logits(whole, all.subspan(33)) ==
            std::vector<float>(expected.end() - (n - 33) * model->hparams().n_vocab, expected.end()));
    }
  }
}

static void sessions_of_one_model_at_once(const fs::path& path) {
  const auto model = load(path, 3, "");
  const auto ids = some_tokens(*model, 40);
  Session alone(model, 40), shared(model, 1000);
  const auto expected = logits(alone, ids);
  std::vector<std::thread> threads;
  std::vector<int> equal(3, 0);
  for (size_t t = 0; t < equal.size(); t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; i++) {
        Session own(model, 40);
        equal[t] += logits(own, ids) == expected;
        shared.eval(ids, Output::logits, Session::Rows::none, nullptr);
        CHECK(shared.n_tokens() > 0 && shared.kv_bytes() > 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int n : equal) CHECK(n == 5);
  CHECK(shared.n_tokens() == 3 * 5 * 40);
}

// One to three bytes of the header changed: an error, or a model that computes without a fault.
static void damaged_headers(const fs::path& path, const fs::path& scratch) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto file = gguf::File::open(path);
  size_t header = bytes.size();
  for (const gguf::Tensor& t : file->tensors()) header -= t.n_bytes;
  std::mt19937 random(1);
  int loaded = 0;
  for (int round = 0; round < 1500; round++) {
    std::string damaged = bytes;
    for (unsigned n = 1 + random() % 3; n > 0; n--) damaged[random() % header] = char(random());
    std::ofstream(scratch, std::ios::binary) << damaged;
    try {
      const auto model = load(scratch, 1, "");
      plan_memory(model->file(), model->backend(), size_t{1} << 30, true, {});
      Session session(model, 8);
      logits(session, some_tokens(*model, 8));
      loaded++;
    } catch (const Error&) {
    }
  }
  CHECK(loaded > 0 && loaded < 1500);
}

int main() {
  const auto paths = fixtures();
  const fs::path scratch = fs::temp_directory_path() / ("pyllamacpp-" + std::to_string(std::random_device()()));
  every_fixture_on_every_level(paths);
  sessions_of_one_model_at_once(paths.front());
  damaged_headers(*std::min_element(paths.begin(), paths.end(),
                                    [](auto& a, auto& b) { return fs::file_size(a) < fs::file_size(b); }),
                  scratch);
  fs::remove(scratch);
  std::printf("%d failed\n", failures);
  return failures != 0;
}
