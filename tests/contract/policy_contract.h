// The behaviours that every policy must show, whatever its rule. Include it in one source file of a
// test program and instantiate PolicyContract with the makers to be held to it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/layer_order.h"
#include "contract/simulated_model.h"
#include "pudica/policy.h"

namespace pudica {

// A policy for the simulated model. Requires: a fresh policy at every call.
struct PolicyMaker {
  std::string name;  // of the test case
  std::function<std::shared_ptr<Policy>(const SimulatedModel&)> make;
};

inline void PrintTo(const PolicyMaker& maker, std::ostream* out) { *out << maker.name; }

class PolicyContract : public testing::TestWithParam<PolicyMaker> {
 protected:
  static constexpr Bytes kBase{1'000'000};

  [[nodiscard]] static StepContext context_at(std::int64_t length, Bytes budget) {
    StepContext context;
    context.shape = ShapeKey{4, length};
    context.base_bytes = kBase;
    context.budget_bytes = budget;
    return context;
  }
  [[nodiscard]] static Bytes ample() { return Bytes(std::int64_t{1} << 40); }
  [[nodiscard]] std::shared_ptr<Policy> make() const { return GetParam().make(model_); }

  void announce(Policy& policy, const StepStructure& structure) {
    announced_ = order_of(structure);
    policy.on_structure(structure);
  }

  // What holds of every decision. `layers`: those announced; 0: none yet.
  void check(const StepDecision& decision, std::size_t layers) {
    ASSERT_NE(decision.plan, nullptr);
    const Plan& plan = *decision.plan;
    EXPECT_NE(plan.id, 0U);
    EXPECT_FALSE(plan.reason.empty());
    EXPECT_LE(plan.joined.size(), plan.modes.size());
    EXPECT_GE(plan.predicted_extra_seconds, 0);
    if (layers != 0 && plan.modes.size() != layers) {
      // Those announced may have left some out: then the plan says which mode is whose.
      EXPECT_EQ(plan.layer_classes.size(), plan.modes.size()) << plan.reason;
      EXPECT_GT(plan.modes.size(), layers) << plan.reason;
      EXPECT_TRUE(is_part_of(announced_, plan.layer_classes)) << plan.reason;
    }
    // One number, one plan: what reporters and caches rely on.
    const auto [known, fresh] = published_.emplace(plan.id, decision.plan);
    if (!fresh) {
      EXPECT_EQ(known->second->modes, plan.modes) << "plan " << plan.id;
      EXPECT_EQ(known->second->default_mode, plan.default_mode) << "plan " << plan.id;
      EXPECT_EQ(known->second->reason, plan.reason) << "plan " << plan.id;
    }
  }

  // One step of the simulated model, checked.
  StepDecision step(Policy& policy, const StepContext& context, const SimulatedModel& model) {
    const StepDecision decision = policy.begin_step(context);
    check(decision, model.layers);
    if (decision.plan != nullptr) policy.end_step(model.run(context, decision));
    return decision;
  }

  // Enough steps of different lengths for any warm-up.
  void train(Policy& policy, int steps = 40) {
    announce(policy, model_.structure());
    for (int i = 0; i < steps; ++i) {
      step(policy, context_at(32 + 29 * (i % 13), ample()), model_);
    }
  }

  SimulatedModel model_;
  std::vector<std::uint16_t> announced_;
  std::map<std::uint64_t, PlanPtr> published_;
};

TEST_P(PolicyContract, HasAName) { EXPECT_FALSE(make()->name().empty()); }

TEST_P(PolicyContract, PlansBeforeTheStructureIsKnown) {
  const auto policy = make();
  for (int i = 0; i < 3; ++i) {
    const StepContext context = context_at(64 + i, ample());
    const StepDecision decision = policy->begin_step(context);
    check(decision, 0);
    policy->end_step(model_.run(context, decision));
  }
  announce(*policy, model_.structure());
  step(*policy, context_at(64, ample()), model_);
}

TEST_P(PolicyContract, ModesMatchTheLayersThroughoutTraining) { train(*make()); }

TEST_P(PolicyContract, SameStepsGiveTheSamePlans) {
  const auto first = make();
  const auto second = make();
  announce(*first, model_.structure());
  announce(*second, model_.structure());
  for (int i = 0; i < 40; ++i) {
    const StepContext context = context_at(32 + 29 * (i % 7), Bytes(40'000'000));
    const StepDecision left = first->begin_step(context);
    const StepDecision right = second->begin_step(context);
    check(left, model_.layers);
    EXPECT_EQ(left.record, right.record);
    EXPECT_EQ(left.plan->id, right.plan->id);
    EXPECT_EQ(left.plan->modes, right.plan->modes);
    EXPECT_EQ(left.plan->reason, right.plan->reason);
    first->end_step(model_.run(context, left));
    second->end_step(model_.run(context, right));
  }
}

TEST_P(PolicyContract, TheSameContextTwiceGivesTheSameModes) {
  const auto policy = make();
  train(*policy);
  const StepContext context = context_at(200, Bytes(20'000'000));
  const StepDecision once = policy->begin_step(context);
  const StepDecision twice = policy->begin_step(context);
  check(once, model_.layers);
  check(twice, model_.layers);
  EXPECT_EQ(once.plan->modes, twice.plan->modes);
  EXPECT_EQ(once.plan->revocable, twice.plan->revocable);
}

TEST_P(PolicyContract, SurvivesAnyBudgetAndBase) {
  const auto policy = make();
  train(*policy, 12);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t budget : {std::int64_t{0}, std::int64_t{1}, kMost / 2, kMost}) {
      for (const std::int64_t base : {std::int64_t{0}, std::int64_t{1} << 40}) {
        StepContext context = context_at(64 + 16 * round, Bytes(budget));
        context.base_bytes = Bytes(base);
        step(*policy, context, model_);
      }
    }
  }
}

TEST_P(PolicyContract, SurvivesFailedAndPartialSteps) {
  const auto policy = make();
  announce(*policy, model_.structure());
  for (int i = 0; i < 40; ++i) {
    const StepContext context = context_at(32 + 29 * (i % 13), ample());
    const StepDecision decision = policy->begin_step(context);
    check(decision, model_.layers);
    StepOutcome outcome = model_.run(context, decision);
    outcome.failed = i % 3 != 2;
    outcome.overrun = i % 4 == 0;
    outcome.revocations = i % 5;
    if (outcome.failed) {
      outcome.segments.resize(outcome.segments.size() / 2);
      outcome.peak_bytes = Bytes(0);
    }
    policy->end_step(outcome);
  }
  step(*policy, context_at(64, ample()), model_);
}

TEST_P(PolicyContract, SurvivesStepsThatNeverEndOrNeverBegan) {
  const auto policy = make();
  announce(*policy, model_.structure());
  policy->end_step(StepOutcome{});
  for (int i = 0; i < 30; ++i) check(policy->begin_step(context_at(64 + i, ample())), 6);
  step(*policy, context_at(64, ample()), model_);
}

TEST_P(PolicyContract, TakesTheOutcomeOfAnEarlierPlan) {
  const auto policy = make();
  announce(*policy, model_.structure());
  const StepContext early = context_at(64, ample());
  const StepDecision old = policy->begin_step(early);
  check(old, model_.layers);
  train(*policy);
  policy->end_step(model_.run(early, old));
  step(*policy, context_at(96, ample()), model_);
}

TEST_P(PolicyContract, FollowsAStructureThatShrinksAndGrows) {
  const auto policy = make();
  train(*policy);
  for (const std::size_t layers : {3U, 9U, 1U, 0U, 6U, 6U}) {
    SimulatedModel other = model_;
    other.layers = layers;
    announce(*policy, other.structure());
    for (int i = 0; i < 15; ++i) {
      step(*policy, context_at(40 + 31 * (i % 5), Bytes(20'000'000)), other);
    }
  }
}

TEST_P(PolicyContract, FollowsOneLayerOfAnotherClass) {
  const auto policy = make();
  train(*policy);
  StepStructure changed = model_.structure();
  changed.layers[2].layer_class = 1;
  changed.class_names.emplace_back("OtherBlock");
  announce(*policy, changed);
  for (int i = 0; i < 15; ++i) step(*policy, context_at(40 + i, ample()), model_);
}

TEST_P(PolicyContract, SurvivesShapesOfAnotherKind) {
  const auto policy = make();
  train(*policy, 12);
  for (const ShapeKey& shape :
       {ShapeKey(), ShapeKey{7}, ShapeKey{4, 64, 32}, ShapeKey{1, 1},
        ShapeKey(DimensionNames{"rows", "columns"}, std::vector<std::int64_t>{4, 64})}) {
    StepContext context = context_at(64, ample());
    context.shape = shape;
    step(*policy, context, model_);
    step(*policy, context, model_);
  }
  step(*policy, context_at(64, ample()), model_);
}

TEST_P(PolicyContract, SurvivesEmptyAndOddRecords) {
  const auto policy = make();
  announce(*policy, model_.structure());
  for (int i = 0; i < 30; ++i) {
    const StepContext context = context_at(32 + 29 * (i % 13), ample());
    const StepDecision decision = policy->begin_step(context);
    check(decision, model_.layers);
    StepOutcome outcome = model_.run(context, decision);
    if (i % 2 == 0) {
      outcome.segments.clear();
    } else {
      for (SegmentObservation& observation : outcome.segments) {
        observation.layer = i % 4 == 1 ? -1 : 1'000'000;
        observation.sample.seconds = 0;
        observation.sample.deltas.clear();
      }
    }
    policy->end_step(outcome);
  }
  step(*policy, context_at(64, ample()), model_);
}

// Any interleaving of valid calls, as an accumulating, failing, budget-changing run would make
// them.
TEST_P(PolicyContract, SurvivesRandomRuns) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    published_.clear();
    std::mt19937 random(seed);
    const auto pick = [&random](int below) {
      return std::uniform_int_distribution<int>(0, below - 1)(random);
    };
    const auto policy = make();
    SimulatedModel model = model_;
    bool announced = false;
    for (int i = 0; i < 120; ++i) {
      if (pick(10) == 0) {
        model.layers = static_cast<std::size_t>(1 + pick(8));
        announce(*policy, model.structure());
        announced = true;
      }
      StepContext context = context_at(1 + pick(400), Bytes(std::int64_t{1} << pick(42)));
      context.gradients_present = pick(4) == 0;
      const StepDecision decision = policy->begin_step(context);
      check(decision, announced ? model.layers : 0);
      if (pick(8) == 0) continue;
      StepOutcome outcome = model.run(context, decision);
      outcome.failed = pick(6) == 0;
      outcome.revocations = pick(3);
      if (pick(6) == 0) outcome.plan = nullptr;
      policy->end_step(outcome);
    }
  }
}

}  // namespace pudica
