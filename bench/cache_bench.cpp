// Latency of Controller::begin_step with the real planner and predictor, on cache hits and misses.
// Prints p50 and p99 in nanoseconds: hits by the wall clock (its own cost, about 20 ns, included),
// misses by the thread's CPU clock, so that a busy machine does not show as a slow planner.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

#include "pudica/controller.h"
#include "support/synthetic_model.h"

namespace {

using pudica::Bytes;
using pudica::ShapeKey;

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kShortest = 64;
constexpr std::int64_t kLengths = 500;  // within the cache's default capacity

std::int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

std::int64_t percentile(std::vector<std::int64_t> values, double share) {
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

void report(int layers, const char* what, const std::vector<std::int64_t>& nanoseconds) {
  std::printf("%3d layers  %-5s  p50 %8lld ns  p99 %8lld ns  (%zu calls)\n", layers, what,
              static_cast<long long>(percentile(nanoseconds, 0.5)),
              static_cast<long long>(percentile(nanoseconds, 0.99)), nanoseconds.size());
}

void measure(int layers) {
  pudica::testing::SyntheticSpec spec;
  spec.encoder_layers = layers;
  pudica::testing::SyntheticModel model(spec);
  pudica::ControllerOptions options;
  const auto controller = pudica::make_controller(options);
  const ShapeKey longest{kBatch, kShortest + kLengths};
  const auto costs = model.true_costs(longest, false);
  const std::vector<std::uint8_t> keep(costs.layers.size(), 0);
  const std::vector<std::uint8_t> full(costs.layers.size(), 1);
  const std::int64_t least = step_peak_bytes(costs, full);
  const std::int64_t most = step_peak_bytes(costs, keep);
  const Bytes budget = model.settled_base() + Bytes(least + (most - least) / 10);
  for (std::int64_t i = 0; i < 8; ++i) {
    const auto context = model.context(ShapeKey{kBatch, kShortest + 16 * i}, budget);
    const auto outcome = model.run(context, controller->begin_step(context));
    controller->on_structure(model.structure());
    controller->end_step(outcome);
  }
  const auto time_step = [&](std::int64_t length, std::int64_t (*now_ns)()) {
    const auto context = model.context(ShapeKey{kBatch, length}, budget);
    const std::int64_t begin = now_ns();
    const auto decision = controller->begin_step(context);
    const std::int64_t end = now_ns();
    return decision.plan == nullptr ? std::int64_t{0} : end - begin;
  };
  std::vector<std::int64_t> misses;
  std::vector<std::int64_t> hits;
  // In an order that is neither rising nor falling, so that warm starts are as in training.
  constexpr std::int64_t kStride = 787;
  for (std::int64_t i = 0; i < kLengths; ++i) {
    misses.push_back(time_step(kShortest + 200 + i * kStride % kLengths, cpu_ns));
  }
  for (std::int64_t i = 0; i < 40 * kLengths; ++i) {
    hits.push_back(time_step(kShortest + 200 + i * kStride % kLengths, wall_ns));
  }
  report(layers, "miss", misses);
  report(layers, "hit", hits);
}

}  // namespace

int main() {
  for (const int layers : {8, 24, 80}) measure(layers);
  return 0;
}
