// Goal: joint segments are costed to the byte, and planned where nothing else fits.
// Method: the tensor-level simulator judges the peak of random joined plans; all plans of small
// chains, joint segments included, judge the planner.
#include <algorithm>

#include <gtest/gtest.h>

#include "planner_chains.h"
#include "pudica/peak_model.h"
#include "support/exhaustive_planner.h"
#include "support/step_simulator.h"

namespace pudica {
namespace {

using testing::CastKind;
using testing::ExhaustivePlanner;
using testing::pick;
using testing::Random;
using testing::SimulatedModel;
using testing::StepSimulator;

constexpr std::uint64_t kSeed = 60221;

struct JoinedPlan {
  std::vector<std::uint8_t> choice;
  std::vector<std::uint8_t> joined;
};

// Any modes, and joints wherever two full layers meet and chance has it; at most kLongestJoint.
JoinedPlan random_plan(Random& random, const SimulatedModel& model) {
  JoinedPlan plan;
  std::size_t run = 0;
  for (const auto& layer : model.layers) {
    const auto last = static_cast<std::int64_t>(layer.modes.size()) - 1;
    const bool full = pick(random, 0, 3) > 0;
    const bool follows = run > 0 && run < kLongestJoint;
    plan.choice.push_back(static_cast<std::uint8_t>(full ? last : pick(random, 0, last)));
    const bool is_full = plan.choice.back() == last;
    plan.joined.push_back(is_full && follows && pick(random, 0, 2) > 0 ? 1 : 0);
    run = !is_full ? 0 : plan.joined.back() != 0 ? run + 1 : 1;
  }
  return plan;
}

SimulatedModel model_with_full(Random& random, std::size_t most_layers, CastKind casts) {
  SimulatedModel model = testing::random_model(random, most_layers, casts);
  testing::add_full_modes(random, model);
  return model;
}

std::int64_t peak_by_chain(const ChainProblem& problem, const JoinedPlan& plan) {
  const ChainPlan value = evaluate(problem.chain, plan.choice, plan.joined);
  return std::max(problem.constant_bytes, problem.offset_bytes + value.peak_bytes);
}

TEST(JointSegments, PeakEqualsTheSimulatedOneToTheByte) {
  Random random(kSeed);
  int joined_layers = 0;
  for (int n = 0; n < 3000; ++n) {
    const SimulatedModel model = model_with_full(random, 12, CastKind::kNone);
    const StepCosts costs = testing::measure_costs(model);
    ChainProblem problem = to_chain(costs);
    add_joints(costs, &problem);
    StepSimulator simulator(model);
    for (int q = 0; q < 6; ++q) {
      const JoinedPlan plan = random_plan(random, model);
      SCOPED_TRACE("seed " + std::to_string(kSeed) + " model " + std::to_string(n));
      const std::int64_t peak = simulator.run(plan.choice, plan.joined).peak_bytes;
      ASSERT_EQ(step_peak_bytes(costs, plan.choice, plan.joined), peak);
      ASSERT_EQ(peak_by_chain(problem, plan), peak);
      joined_layers += static_cast<int>(std::ranges::count(plan.joined, 1));
    }
  }
  EXPECT_GT(joined_layers, 20000);
}

TEST(JointSegments, PeakIsNeverBelowTheSimulatedOneWithWeightCasts) {
  Random random(kSeed + 1);
  for (const CastKind casts : {CastKind::kSameInAllModes, CastKind::kByMode}) {
    for (int n = 0; n < 1000; ++n) {
      const SimulatedModel model = model_with_full(random, 10, casts);
      const StepCosts costs = testing::measure_costs(model);
      ChainProblem problem = to_chain(costs);
      add_joints(costs, &problem);
      StepSimulator simulator(model);
      for (int q = 0; q < 4; ++q) {
        const JoinedPlan plan = random_plan(random, model);
        const std::int64_t peak = simulator.run(plan.choice, plan.joined).peak_bytes;
        ASSERT_GE(step_peak_bytes(costs, plan.choice, plan.joined), peak) << "model " << n;
        ASSERT_GE(peak_by_chain(problem, plan), peak) << "model " << n;
      }
    }
  }
}

// A chain whose joint segments keep less and need more than their layers one by one.
Chain chain_with_joints(Random& random, std::size_t layers) {
  constexpr auto kKinds = testing::kAllKinds;
  const auto kind = kKinds[pick(random, 0, 4)];
  Chain chain = testing::random_chain(random, kind, layers, 3);
  const std::int64_t scale = kind == testing::ChainKind::kTies ? 1 : 1'000'000;
  chain.joints.resize(layers);
  chain.joint_choice.assign(layers, 2);
  for (std::size_t i = 0; i < layers; ++i) {
    ChainMode as_one = chain.layers[i][2];
    for (std::size_t length = 2; i + length <= layers && length <= 4; ++length) {
      const ChainMode& more = chain.layers[i + length - 1][2];
      as_one.kept_bytes += more.kept_bytes - pick(random, 0, 2 * scale);
      as_one.peak_bytes =
          std::max(as_one.peak_bytes, more.peak_bytes) + pick(random, -1, 1) * scale;
      as_one.time_ns += more.time_ns;
      if (pick(random, 0, 5) > 0) chain.joints[i].push_back({length, as_one});
    }
  }
  return chain;
}

TEST(JointSegments, ArePlannedWithinTheCertificateOfAllPlans) {
  Random random(kSeed + 2);
  const auto planner = make_planner({});
  int below_flat = 0;
  int exact = 0;
  for (int n = 0; n < 1500; ++n) {
    const Chain chain = chain_with_joints(random, static_cast<std::size_t>(pick(random, 1, 6)));
    Chain flat = chain;
    flat.joints.clear();
    const std::int64_t flat_floor = floor_plan(flat).peak_bytes;
    const ExhaustivePlanner judge(chain);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    const ChainPlan floor = floor_plan(chain);
    ASSERT_EQ(floor.peak_bytes, judge.floor_bytes());
    ASSERT_EQ(evaluate(chain, floor.choice, floor.joined).peak_bytes, floor.peak_bytes);
    ASSERT_EQ(planner->solve(chain, judge.floor_bytes() - 1, {}).error().code,
              ErrorCode::kOverBudget);
    for (const FrontierPoint& point : judge.frontier()) {
      if (point.peak_bytes >= flat_floor) break;
      const auto plan = planner->solve(chain, point.peak_bytes, {});
      ASSERT_TRUE(plan.has_value());
      ASSERT_LE(plan->peak_bytes, point.peak_bytes);
      ASSERT_EQ(plan->time_ns, evaluate(chain, plan->choice, plan->joined).time_ns);
      ASSERT_GE(plan->time_ns, point.time_ns);
      ASSERT_LE(plan->lower_bound_ns, point.time_ns);
      ASSERT_LE(plan->time_ns - plan->lower_bound_ns, plan->time_ns / 50 + 6);
      exact += plan->time_ns == point.time_ns ? 1 : 0;
      ++below_flat;
    }
  }
  EXPECT_GT(below_flat, 1000);
  EXPECT_GT(exact, below_flat * 9 / 10);
}

TEST(JointSegments, AreLeftOutWhereTheLayersOneByOneFit) {
  Random random(kSeed + 3);
  const auto planner = make_planner({});
  for (int n = 0; n < 300; ++n) {
    const Chain chain = chain_with_joints(random, static_cast<std::size_t>(pick(random, 2, 6)));
    Chain flat = chain;
    flat.joints.clear();
    const std::int64_t floor = floor_plan(flat).peak_bytes;
    const auto plan = planner->solve(chain, floor, {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_TRUE(plan->joined.empty());
    EXPECT_EQ(plan->choice, planner->solve(flat, floor, {})->choice);
  }
}

TEST(JointSegments, ExtendTheFrontierBelowTheFlatFloor) {
  Random random(kSeed + 4);
  const auto planner = make_planner({});
  int below_flat = 0;
  for (int n = 0; n < 300; ++n) {
    const Chain chain = chain_with_joints(random, static_cast<std::size_t>(pick(random, 1, 6)));
    const ExhaustivePlanner judge(chain);
    const auto frontier = planner->frontier(chain);
    ASSERT_TRUE(frontier.has_value());
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    EXPECT_EQ(frontier->front().peak_bytes, judge.floor_bytes());
    for (std::size_t p = 0; p < frontier->size(); ++p) {
      if (p > 0) {
        ASSERT_GT((*frontier)[p].peak_bytes, (*frontier)[p - 1].peak_bytes);
        ASSERT_LT((*frontier)[p].time_ns, (*frontier)[p - 1].time_ns);
      }
      ASSERT_GE((*frontier)[p].time_ns, *judge.best_ns((*frontier)[p].peak_bytes));
    }
    Chain flat = chain;
    flat.joints.clear();
    below_flat += judge.floor_bytes() < floor_plan(flat).peak_bytes ? 1 : 0;
  }
  EXPECT_GT(below_flat, 100);
}

}  // namespace
}  // namespace pudica
