// How long planning takes, and how far from optimal a plan can be. A row is a kind and size of
// chain; every call has a chain and a budget of its own, and is timed once, with cold caches: what
// a training step would wait. Usage: plan_bench [--calls N] [--json FILE]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "pudica/peak_model.h"
#include "pudica/planner.h"

namespace {

using pudica::Chain;
using pudica::ChainMode;
using Random = std::mt19937_64;

double uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

// One step of a class's menu, in layer-boundary tensors of 6.4 MB and percent of a layer's forward.
struct MenuStep {
  double kept, forward, backward, time;
};
// From keep to full recompute, as measured on a BERT layer.
constexpr MenuStep kMenu[] = {
    {18.06, 21.06, 21.17, 0},   {16.12, 19.12, 20.24, 1.2}, {12.12, 19.12, 20.24, 3.5},
    {11.12, 19.12, 19.24, 4.2}, {7.12, 19.12, 20.24, 18.5}, {6.12, 19.12, 19.24, 22.1},
    {5.12, 19.12, 18.24, 25.9}, {4.12, 19.12, 17.24, 29.5}, {3.12, 18.12, 18.24, 34.2},
    {2.12, 18.12, 18.24, 49.2}, {1.12, 17.12, 21.24, 86.1},
};
constexpr double kTensorBytes = 6.4e6;
constexpr double kPercentNs = 1e5;  // of a layer's forward of 10 ms

struct Row {
  const char* name;
  std::size_t layers;
  std::size_t modes;
  bool heterogeneous;
};

std::vector<std::size_t> menu_steps(std::size_t modes) {
  switch (modes) {
    case 2:
      return {0, 10};
    case 4:
      return {0, 3, 7, 10};
    default:
      return {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  }
}

std::int64_t to_bytes(double tensors) {
  return std::llround(tensors * kTensorBytes / 512) * 512;  // as a CUDA allocator rounds
}

// Every layer alike, its times jittered once for the whole chain.
std::vector<ChainMode> uniform_layer(const Row& row, const std::vector<double>& jitter) {
  std::vector<ChainMode> layer;
  for (const std::size_t step : menu_steps(row.modes)) {
    const MenuStep& menu = kMenu[step];
    layer.push_back({to_bytes(menu.kept), to_bytes(std::max(menu.forward, menu.backward)),
                     std::llround(menu.time * jitter[step] * kPercentNs)});
  }
  return layer;
}

// A layer of its own size, cuts and slopes; times are nearly convex in bytes, as menus are.
std::vector<ChainMode> own_layer(const Row& row, Random& random) {
  const double size = uniform(random, 0.5, 2);
  const double speed = uniform(random, 0.5, 2);
  std::vector<double> kept{18};
  for (std::size_t m = 1; m < row.modes; ++m) kept.push_back(uniform(random, 1, 17.5));
  std::ranges::sort(kept, std::ranges::greater());
  std::vector<double> time{0};
  double slope = 0.6;
  for (std::size_t m = 1; m < row.modes; ++m) {
    slope *= uniform(random, 0.95, 1 + 4.0 / static_cast<double>(row.modes));
    time.push_back(time.back() + (kept[m - 1] - kept[m]) * slope);
  }
  const double scale = uniform(random, 60, 100) / time.back() * speed * kPercentNs;
  std::vector<ChainMode> layer;
  for (std::size_t m = 0; m < row.modes; ++m) {
    const double peak = std::max(uniform(random, 17, 22), kept[m] + 1);
    layer.push_back(
        {to_bytes(kept[m] * size), to_bytes(peak * size), std::llround(time[m] * scale)});
  }
  return layer;
}

// A step is three times the layers' forward.
double step_ns(const Row& row) { return 3.0 * static_cast<double>(row.layers) * 100 * kPercentNs; }

Chain make_chain(const Row& row, Random& random) {
  std::vector<double> jitter;
  for (std::size_t m = 0; m < std::size(kMenu); ++m) jitter.push_back(uniform(random, 0.85, 1.15));
  Chain chain;
  double gradients = 0;
  const double layer_gradients = uniform(random, 0.1, 1.2);
  for (std::size_t i = 0; i < row.layers; ++i) {
    chain.layers.push_back(row.heterogeneous ? own_layer(row, random) : uniform_layer(row, jitter));
  }
  for (std::size_t i = row.layers; i-- > 0;) {
    for (ChainMode& mode : chain.layers[i]) mode.peak_bytes += to_bytes(gradients);
    gradients += layer_gradients * (row.heterogeneous ? uniform(random, 0.5, 2) : 1);
  }
  chain.tail_bytes = to_bytes(uniform(random, 2, 30));
  chain.step_ns = static_cast<std::int64_t>(step_ns(row));
  return chain;
}

// Of this thread's processor time, so that other programs on the machine do not count.
double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Of one call, after what other work leaves in the processor's caches.
double microseconds_of(auto&& call) {
  static std::vector<char> other(4 << 20);
  for (char& byte : other) ++byte;
  const double begin = thread_us();
  call();
  return thread_us() - begin;
}

void run(const Row& row, std::int64_t calls, Random& random, pudica::bench::Report& report) {
  const auto planner = pudica::make_planner({});
  std::vector<double> frontier_us;
  std::vector<double> solve_us;
  std::vector<double> warm_us;
  std::vector<double> gap_percent;
  std::vector<double> points;
  for (std::int64_t n = 0; n < calls; ++n) {
    const Chain chain = make_chain(row, random);
    const std::int64_t floor = pudica::floor_plan(chain).peak_bytes;
    const std::vector<std::uint8_t> keep(row.layers, 0);
    const std::int64_t most = pudica::evaluate(chain, keep).peak_bytes;
    const auto budget = floor + static_cast<std::int64_t>(uniform(random, 0, 1) *
                                                          static_cast<double>(most - floor));
    std::size_t found = 0;
    frontier_us.push_back(microseconds_of([&] { found = planner->frontier(chain)->size(); }));
    points.push_back(static_cast<double>(found));
    pudica::ChainPlan plan;
    solve_us.push_back(microseconds_of([&] { plan = *planner->solve(chain, budget, {}); }));
    gap_percent.push_back(static_cast<double>(plan.time_ns - plan.lower_bound_ns) / step_ns(row) *
                          100);
    // A neighbour's plan: that of a slightly smaller budget.
    const auto near = planner->solve(chain, budget - (budget - floor) / 50, {});
    warm_us.push_back(
        microseconds_of([&] { plan = *planner->solve(chain, budget, near->choice); }));
  }
  const std::string name = row.name;
  report.add(name + ": whole frontier", "us", std::move(frontier_us));
  report.add(name + ": points of the frontier", "count", std::move(points));
  report.add(name + ": solve", "us", std::move(solve_us));
  report.add(name + ": solve, warm", "us", std::move(warm_us));
  const double mean = std::accumulate(gap_percent.begin(), gap_percent.end(), 0.0) /
                      static_cast<double>(gap_percent.size());
  report.add(name + ": certified gap", "% step", std::move(gap_percent));
  report.add(name + ": certified gap, mean", "% step", {mean});
}

// Layers of the menu above, recomputed alone or as one: below the floor of single layers.
pudica::StepCosts deep_costs(std::size_t layers, Random& random) {
  pudica::StepCosts costs;
  const double size = uniform(random, 0.5, 2);
  for (std::size_t i = 0; i < layers; ++i) {
    pudica::LayerCosts& layer = costs.layers.emplace_back();
    layer.output_bytes = to_bytes(size);
    layer.follows_previous = i > 0;
    for (std::size_t m = 0; m < std::size(kMenu); ++m) {
      const MenuStep& menu = kMenu[m];
      pudica::LayerModeCosts& mode = layer.modes.emplace_back();
      mode.mode = m == 0 ? pudica::Mode::keep()
                         : pudica::Mode::selective(static_cast<std::uint16_t>(m - 1));
      mode.forward_net_bytes = to_bytes(menu.kept * size);
      mode.forward_peak_bytes = to_bytes(menu.forward * size);
      mode.backward_peak_bytes = to_bytes((menu.backward - menu.kept) * size);
      mode.extra_seconds = menu.time * kPercentNs * 1e-9;
    }
    pudica::LayerModeCosts full = layer.modes.back();
    full.mode = pudica::Mode::full();
    full.forward_net_bytes = to_bytes(size);
    full.backward_peak_bytes = to_bytes(21.1 * size);
    full.extra_seconds = 100 * kPercentNs * 1e-9;
    layer.modes.push_back(full);
  }
  return costs;
}

void run_joint(std::size_t layers, std::int64_t calls, Random& random,
               pudica::bench::Report& report) {
  const auto planner = pudica::make_planner({});
  std::vector<double> solve_us;
  std::vector<double> gap_percent;
  std::vector<double> floor_percent;
  for (std::int64_t n = 0; n < calls; ++n) {
    const pudica::StepCosts costs = deep_costs(layers, random);
    const std::vector<std::uint8_t> full(layers, std::size(kMenu));
    pudica::ChainProblem problem = pudica::to_chain(costs);
    const std::int64_t flat = pudica::floor_plan(problem.chain).peak_bytes;
    pudica::add_joints(costs, &problem);
    const std::int64_t floor = pudica::floor_plan(problem.chain).peak_bytes;
    const auto all = static_cast<double>(pudica::step_peak_bytes(costs, full));
    floor_percent.push_back(static_cast<double>(floor) / all * 100);
    const auto budget = floor + static_cast<std::int64_t>(uniform(random, 0, 1) *
                                                          static_cast<double>(flat - floor));
    pudica::ChainPlan plan;
    solve_us.push_back(microseconds_of([&] {
      pudica::ChainProblem again = pudica::to_chain(costs);
      pudica::add_joints(costs, &again);
      plan = *planner->solve(again.chain, std::min(budget, flat - 1), {});
    }));
    const double step = 3.0 * static_cast<double>(layers) * 100 * kPercentNs;
    gap_percent.push_back(static_cast<double>(plan.time_ns - plan.lower_bound_ns) / step * 100);
  }
  const std::string name = std::to_string(layers) + "x12 joint";
  report.add(name + ": solve", "us", std::move(solve_us));
  report.add(name + ": certified gap", "% step", std::move(gap_percent));
  report.add(name + ": floor", "% of checkpoint-all", std::move(floor_percent));
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::uint64_t kSeed = 7;
  const auto arguments = pudica::bench::parse_arguments(argc, argv, 1000);
  pudica::bench::Report report("plan", kSeed);
  constexpr Row kRows[] = {
      {"8x11 uniform", 8, 11, false},      {"24x2 uniform", 24, 2, false},
      {"24x11 uniform", 24, 11, false},    {"48x2 uniform", 48, 2, false},
      {"80x4 heterogeneous", 80, 4, true}, {"128x11 heterogeneous", 128, 11, true}};
  for (const Row& row : kRows) {
    Random random(kSeed);
    run(row, arguments.calls, random, report);
  }
  for (const std::size_t layers : {32, 128}) {
    Random random(kSeed);
    run_joint(layers, arguments.calls, random, report);
  }
  return report.write(arguments);
}
