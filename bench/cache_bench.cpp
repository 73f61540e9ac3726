// Latency of Controller::begin_step with the real planner and predictor, on cache hits and misses.
// Wall clock of every single call, the clock's own cost (about 20 ns) included: run it on a quiet
// machine. `--calls` is not used: a miss happens once a shape.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/harness.h"
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

void measure(int layers, pudica::bench::Report& report) {
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
  std::vector<double> misses_us;
  std::vector<double> hits_ns;
  // In an order that is neither rising nor falling, so that warm starts are as in training.
  constexpr std::int64_t kStride = 787;
  for (std::int64_t i = 0; i < kLengths; ++i) {
    misses_us.push_back(
        1e-3 * static_cast<double>(time_step(kShortest + 200 + i * kStride % kLengths, wall_ns)));
  }
  for (std::int64_t i = 0; i < 40 * kLengths; ++i) {
    hits_ns.push_back(
        static_cast<double>(time_step(kShortest + 200 + i * kStride % kLengths, wall_ns)));
  }
  const std::string name = std::to_string(layers) + " layers: ";
  report.add(name + "miss", "us", std::move(misses_us));
  report.add(name + "hit", "ns", std::move(hits_ns));
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = pudica::bench::parse_arguments(argc, argv, kLengths);
  pudica::bench::Report report("cache", 0);
  for (const int layers : {8, 24, 80}) measure(layers, report);
  return report.write(arguments);
}
