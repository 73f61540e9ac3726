// Goal: no plan is cheaper than the oracle's under the oracle's own costs. Method: random steps, of
// which every plan is tried; and every policy that plans, trained on random models whose costs the
// oracle knows with a richer menu.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/simulated_model.h"
#include "policy/policies.h"
#include "policy/policy_factory.h"
#include "support/step_simulator.h"

namespace pudica {
namespace {

using Random = std::mt19937_64;
using Choice = std::vector<std::uint8_t>;

constexpr std::uint64_t kSeed = 20260725;
constexpr double kRoundingSeconds = 1e-6;  // plans are made in whole nanoseconds
constexpr Bytes kBase{1'000'000};

StepStructure structure_of(std::size_t layers) {
  StepStructure structure;
  structure.layers.resize(layers);
  structure.class_names = {"Block"};
  return structure;
}

PlanPtr plan_of_oracle(const StepCosts& costs, const StepContext& context) {
  OraclePolicyOptions options;
  options.costs.emplace(context.shape, costs);
  const auto oracle = make_oracle_policy(std::move(options));
  oracle->on_structure(structure_of(costs.layers.size()));
  return oracle->begin_step(context).plan;
}

// The mode's place in each layer's costs; nothing: a layer lacks it.
std::optional<Choice> choice_of(const Plan& plan, const StepCosts& costs) {
  Choice choice;
  for (std::size_t i = 0; i < costs.layers.size(); ++i) {
    const auto& modes = costs.layers[i].modes;
    const auto found = std::ranges::find(modes, plan.modes[i], &LayerModeCosts::mode);
    if (found == modes.end()) return std::nullopt;
    choice.push_back(static_cast<std::uint8_t>(found - modes.begin()));
  }
  return choice;
}

// Calls `visit` for every choice.
template <typename F>
void each_choice(const StepCosts& costs, const F& visit) {
  Choice choice(costs.layers.size(), 0);
  for (;;) {
    visit(choice);
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == costs.layers[i].modes.size()) choice[i++] = 0;
    if (i == choice.size()) return;
  }
}

TEST(OracleProperty, NoPlanThatFitsIsFaster) {
  Random random(kSeed);
  for (int n = 0; n < 300; ++n) {
    const auto model = testing::random_model(random, 5, testing::CastKind::kNone);
    StepCosts costs = testing::measure_costs(model);
    for (LayerCosts& layer : costs.layers) {
      for (LayerModeCosts& mode : layer.modes) {
        mode.extra_seconds = 1e-3 * std::uniform_real_distribution<double>(0, 1)(random);
      }
    }
    std::int64_t least = INT64_MAX;
    std::int64_t most = 0;
    each_choice(costs, [&](const Choice& choice) {
      least = std::min(least, step_peak_bytes(costs, choice));
      most = std::max(most, step_peak_bytes(costs, choice));
    });
    const std::int64_t room = std::uniform_int_distribution<std::int64_t>(least, most)(random);
    StepContext context;
    context.shape = ShapeKey{4, 128};
    context.base_bytes = kBase;
    context.budget_bytes = kBase + Bytes(room);
    std::optional<double> best;
    each_choice(costs, [&](const Choice& choice) {
      if (step_peak_bytes(costs, choice) > room) return;
      const double seconds = step_extra_seconds(costs, choice);
      if (!best || seconds < *best) best = seconds;
    });
    const PlanPtr plan = plan_of_oracle(costs, context);
    ASSERT_TRUE(best.has_value());
    ASSERT_TRUE(plan->feasible) << "seed " << kSeed << " model " << n;
    ASSERT_LE(plan->predicted_peak_bytes, context.budget_bytes) << n;
    ASSERT_LE(plan->predicted_extra_seconds, *best + kRoundingSeconds)
        << "seed " << kSeed << " model " << n << ": " << plan->reason;
  }
}

// Keep and full as the model has them, and in between what only the oracle may use.
StepCosts with_selective_modes(StepCosts costs, Random& random) {
  std::uniform_real_distribution<double> part(0.05, 0.95);
  const double shares[] = {part(random), part(random)};
  for (LayerCosts& layer : costs.layers) {
    const LayerModeCosts keep = layer.modes[0];
    const LayerModeCosts full = layer.modes[1];
    for (std::uint16_t step = 0; step < 2; ++step) {
      const double share = shares[step];
      LayerModeCosts mode = keep;
      mode.mode = Mode::selective(step);
      const auto freed = static_cast<double>(keep.forward_net_bytes - full.forward_net_bytes);
      const auto part_bytes = static_cast<std::int64_t>(share * freed);
      mode.forward_net_bytes -= part_bytes;
      mode.backward_peak_bytes += part_bytes;
      mode.extra_seconds = share * share * full.extra_seconds;
      layer.modes.push_back(mode);
    }
  }
  return costs;
}

// One policy, trained under a budget until it has learned what it learns; its plan at a shape.
PlanPtr trained_plan(const std::string& name, const SimulatedModel& model,
                     const std::vector<std::int64_t>& lengths, const StepContext& asked) {
  PolicyInputs inputs;
  inputs.longest_shape = ShapeKey{4, *std::ranges::max_element(lengths)};
  inputs.longest_costs = model.costs(inputs.longest_shape);
  inputs.oracle_costs.emplace(asked.shape, model.costs(asked.shape));
  auto policy = make_policy(*parse_policy_spec(name), inputs);
  EXPECT_TRUE(policy.has_value()) << name;
  (*policy)->on_structure(model.structure());
  for (std::size_t step = 0; step < 30; ++step) {
    StepContext context = asked;
    context.shape = ShapeKey{4, lengths[step % lengths.size()]};
    const StepDecision decision = (*policy)->begin_step(context);
    (*policy)->end_step(model.run(context, decision));
  }
  return (*policy)->begin_step(asked).plan;
}

TEST(OracleProperty, NoPolicysPlanThatFitsIsFaster) {
  Random random(kSeed + 1);
  int compared = 0;
  for (int n = 0; n < 40; ++n) {
    const auto pick = [&random](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    const SimulatedModel model{.layers = static_cast<std::size_t>(pick(2, 12)),
                               .hidden = 16 * pick(1, 8),
                               .heads = pick(1, 8)};
    std::vector<std::int64_t> lengths;
    for (int i = 0; i < 5; ++i) lengths.push_back(pick(8, 400));
    StepContext context;
    context.shape = ShapeKey{4, lengths[0]};
    context.base_bytes = kBase;
    const StepCosts plain = model.costs(context.shape);
    const std::int64_t keep_all = step_peak_bytes(plain, Choice(model.layers, 0));
    const std::int64_t floor = step_peak_bytes(plain, Choice(model.layers, 1));
    const double share = std::uniform_real_distribution<double>(0, 1.1)(random);
    const auto room =
        floor + static_cast<std::int64_t>(share * static_cast<double>(keep_all - floor));
    context.budget_bytes = kBase + Bytes(room);
    const StepCosts costs = with_selective_modes(plain, random);
    const PlanPtr oracle = plan_of_oracle(costs, context);
    ASSERT_LE(oracle->predicted_peak_bytes, context.budget_bytes);
    EXPECT_LE(oracle->certified_gap_seconds,
              1e-4 * step_extra_seconds(plain, Choice(model.layers, 1)))
        << "model " << n << ": the certificate says little";
    for (const char* name :
         {"none", "full", "every_n:n=1", "every_n:n=2", "every_n:n=3", "sqrt", "static", "mimose",
          "mimose:rule=code", "reactive", "pudica", "pudica:menu=keep+full", "oracle"}) {
      const PlanPtr plan = trained_plan(name, model, lengths, context);
      ASSERT_EQ(plan->modes.size(), model.layers) << name;
      const auto choice = choice_of(*plan, costs);
      ASSERT_TRUE(choice.has_value()) << name;
      if (step_peak_bytes(costs, *choice, plan->joined) > room) continue;
      ++compared;
      EXPECT_LE(
          oracle->predicted_extra_seconds,
          step_extra_seconds(costs, *choice) + oracle->certified_gap_seconds + kRoundingSeconds)
          << name << ", seed " << kSeed << " model " << n << ": " << oracle->reason;
    }
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace pudica
