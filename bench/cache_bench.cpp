// Latency of Controller::begin_step with the real planner and predictor, on hits and misses of the
// plan cache. What is timed: wall clock around every single call, the clock's own cost (some 20 ns)
// included, on one thread; run it on a quiet machine. A miss predicts, plans and inserts a shape
// never planned before, in a budget that forces recomputation; a hit finds the plan again.
// "cold": the processor's caches were overwritten before the call, as a training step does.
// `--calls` is not used: a miss happens once a shape. Whether every call was the hit or the miss it
// is counted as is checked by the controller's own counters; else the program fails.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness.h"
#include "pudica/controller.h"
#include "support/synthetic_model.h"

namespace {

using pudica::Bytes;
using pudica::ShapeKey;

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kShortestTaught = 64;
constexpr std::int64_t kTaughtSteps = 8;
constexpr std::int64_t kShortest = 264;
constexpr std::int64_t kLengths = 500;  // within the cache's default capacity
// Coprime to kLengths: an order that neither rises nor falls, so that warm starts are as in
// training.
constexpr std::int64_t kStride = 787;

enum class Caches : std::uint8_t { kWarm, kCold };

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "cache_bench: %s\n", what.c_str());
  std::exit(1);
}

void expect(const char* what, std::int64_t seen, std::int64_t expected) {
  if (seen == expected) return;
  fail(std::string(what) + ": " + std::to_string(seen) + ", expected " + std::to_string(expected));
}

void overwrite_caches() {
  static std::vector<char> other(std::size_t{32} << 20U);
  constexpr std::size_t kLineBytes = 64;
  for (std::size_t i = 0; i < other.size(); i += kLineBytes) ++other[i];
}

// A controller that has learned its model, under a budget that binds.
class Bench {
 public:
  Bench(int layers, Caches caches)
      : model_(spec_of(layers)), controller_(pudica::make_controller({})), caches_(caches) {
    const auto costs = model_.true_costs(ShapeKey{kBatch, kShortest + kLengths}, false);
    const std::vector<std::uint8_t> keep(costs.layers.size(), 0);
    const std::vector<std::uint8_t> full(costs.layers.size(), 1);
    const std::int64_t least = step_peak_bytes(costs, full);
    const std::int64_t most = step_peak_bytes(costs, keep);
    // Above the floor of the longest shape, so that each one has a plan that fits.
    budget_ = model_.settled_base() + Bytes(least + (most - least) / 10);
    for (std::int64_t i = 0; i < kTaughtSteps; ++i) {
      const auto context = model_.context(ShapeKey{kBatch, kShortestTaught + 16 * i}, budget_);
      const auto outcome = model_.run(context, controller_->begin_step(context));
      controller_->on_structure(model_.structure());
      controller_->end_step(outcome);
    }
  }

  // Nanoseconds of `calls` calls, going through the lengths.
  std::vector<double> begin_steps(std::int64_t calls) {
    std::vector<double> times_ns;
    times_ns.reserve(static_cast<std::size_t>(calls));
    for (std::int64_t i = 0; i < calls; ++i) {
      times_ns.push_back(begin_step_ns(kShortest + i * kStride % kLengths));
    }
    return times_ns;
  }

  [[nodiscard]] pudica::ControllerSnapshot snapshot() const { return controller_->snapshot(); }

 private:
  static pudica::testing::SyntheticSpec spec_of(int layers) {
    pudica::testing::SyntheticSpec spec;
    spec.encoder_layers = layers;
    spec.seed = kSeed;
    return spec;
  }

  double begin_step_ns(std::int64_t length) {
    using Clock = std::chrono::steady_clock;
    const auto context = model_.context(ShapeKey{kBatch, length}, budget_);
    if (caches_ == Caches::kCold) overwrite_caches();
    const auto begin = Clock::now();
    const auto decision = controller_->begin_step(context);
    const auto end = Clock::now();
    if (decision.plan == nullptr) fail("a step without a plan");
    if (std::ranges::count(decision.plan->modes, pudica::Mode::full()) == 0) {
      fail("length " + std::to_string(length) + ": a plan that recomputes nothing");
    }
    return std::chrono::duration<double, std::nano>(end - begin).count();
  }

  pudica::testing::SyntheticModel model_;
  std::unique_ptr<pudica::Controller> controller_;
  Caches caches_;
  Bytes budget_{0};
};

void measure(int layers, Caches caches, pudica::bench::Report& report) {
  Bench bench(layers, caches);
  const std::int64_t hit_calls = caches == Caches::kWarm ? 40 * kLengths : kLengths;
  const auto before = bench.snapshot();
  std::vector<double> misses_us = bench.begin_steps(kLengths);
  const auto between = bench.snapshot();
  std::vector<double> hits_ns = bench.begin_steps(hit_calls);
  const auto after = bench.snapshot();
  expect("planned misses", between.counters.plans_made - before.counters.plans_made, kLengths);
  expect("hits among misses", between.cache_hits - before.cache_hits, 0);
  expect("hits", after.cache_hits - between.cache_hits, hit_calls);
  expect("plans made on hits", after.counters.plans_made - between.counters.plans_made, 0);
  expect("shapes without a plan that fits", after.counters.infeasible_steps, 0);
  for (double& time : misses_us) time *= 1e-3;
  const std::string name =
      std::to_string(layers) + (caches == Caches::kWarm ? " layers: " : " layers, cold: ");
  report.add(name + "miss", "us", std::move(misses_us));
  report.add(name + "hit", "ns", std::move(hits_ns));
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = pudica::bench::parse_arguments(argc, argv, kLengths);
  pudica::bench::Report report("cache", kSeed);
  for (const int layers : {8, 24, 80}) {
    measure(layers, Caches::kWarm, report);
    measure(layers, Caches::kCold, report);
  }
  return report.write(arguments);
}
