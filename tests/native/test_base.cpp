// Thread pool, half conversions, memory: what is awkward to reach from Python. Run under sanitizers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "base/exp_log.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "check.h"

using namespace pllm;

static void pool_runs_every_item_once() {
  for (int n_threads : {1, 2, 3, 7}) {
    ThreadPool pool(n_threads);
    for (int n_items : {0, 1, 2, 3, 5, 64, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n_items));
      std::atomic<bool> bad_thread{false};
      pool.run(n_items, [&](int thread, int item) {
        if (thread < 0 || thread >= n_threads) bad_thread = true;
        hits[size_t(item)]++;
      });
      for (auto& h : hits) CHECK(h == 1);
      CHECK(!bad_thread);
    }
  }
}

// Each run reads what the one before wrote: a late helper that touched a finished run would be caught here.
static void runs_follow_each_other() {
  ThreadPool pool(3);
  std::vector<long> data(97, 0);
  for (int round = 0; round < 3000; round++) {
    if (round % 500 == 499) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // let the helpers sleep
    pool.run(int(data.size()), [&](int, int i) { data[size_t(i)] += i; });
  }
  for (size_t i = 0; i < data.size(); i++) CHECK(data[i] == long(i) * 3000);
}

// The caller stops watching and sleeps while a helper is held up inside an item.
static void caller_waits_for_slow_items() {
  ThreadPool pool(2);
  for (int round = 0; round < 20; round++) {
    std::atomic<int> done{0};
    pool.run(2, [&](int, int) {
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 2 ? 1 : 0) + std::chrono::microseconds(10 * round));
      done++;
    });
    CHECK(done == 2);
  }
}

static void exceptions_come_out_of_run() {
  for (int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (int bad : {0, 49, 99}) {
      std::atomic<int> running{0};
      int caught = -1;
      try {
        pool.run(100, [&](int, int item) {
          running++;
          if (item == bad) {
            running--;
            throw item;
          }
          running--;
        });
      } catch (int item) {
        caught = item;
      }
      CHECK(caught == bad && running == 0);
      std::atomic<int> hits{0};
      pool.run(100, [&](int, int) { hits++; });  // as good as new
      CHECK(hits == 100);
    }
  }
}

static void halves_round_trip() {
  for (uint32_t h = 0; h < 0x10000; h++) {
    const float f = half_to_float(uint16_t(h));
    if (std::isnan(f)) {
      CHECK(std::isnan(half_to_float(float_to_half(f))));
    } else {
      CHECK(float_to_half(f) == h);
    }
  }
  CHECK(float_to_half(65520.f) == 0x7c00);  // rounds up to infinity
  CHECK(float_to_half(65519.f) == 0x7bff);  // the largest
  CHECK(float_to_half(0x1p-25f) == 0);      // a tie, to even
  CHECK(float_to_half(0x1.8p-25f) == 1);
  CHECK(float_to_half(1.f + 0x1p-11f) == 0x3c00);  // a tie, to even
  CHECK(float_to_half(1.f + 0x3p-11f) == 0x3c02);
}

static void angles_are_as_good_as_libm() {
  double worst = 0;
  for (int i = 0; i < 200000; i++) {
    const double x = double(float(i % 1000 ? i * 0.37 : i * 5.0)) * (i % 2 ? 1 : -1);
    const SinCos turn = sin_cos(x);
    worst = std::max({worst, std::abs(turn.sin - std::sin(x)), std::abs(turn.cos - std::cos(x))});
  }
  CHECK(worst < 0x1p-51);
  CHECK(sin_cos(0).cos == 1 && sin_cos(0).sin == 0);
  for (double base : {1.001, 10000.0, 1e6, 1e12})
    for (double y : {0.0, 0.25, 0.5, 0.984375}) CHECK(std::abs(power(base, y) / std::pow(base, y) - 1) < 1e-14);
}

static void memory_is_zero_and_aligned() {
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{5} << 20}) {
    Memory m(bytes);
    CHECK(m.size() == bytes && reinterpret_cast<uintptr_t>(m.data()) % 64 == 0);
    CHECK(m.data()[0] == 0 && m.data()[bytes - 1] == 0);
    Memory moved = std::move(m);
    CHECK(m.data() == nullptr && moved.size() == bytes);
  }
}

int main() {
  pool_runs_every_item_once();
  runs_follow_each_other();
  caller_waits_for_slow_items();
  exceptions_come_out_of_run();
  halves_round_trip();
  angles_are_as_good_as_libm();
  memory_is_zero_and_aligned();
  std::printf("%d failed\n", failures);
  return failures != 0;
}
