// static and oracle: plans from costs that are known beforehand.
#include <algorithm>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/simulated_model.h"
#include "policy/policies.h"

namespace pudica {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr SimulatedModel kModel{.layers = 8};
constexpr Bytes kAmple{1'000'000'000'000};

StepContext context_at(std::int64_t length, Bytes base, Bytes budget) {
  StepContext context;
  context.shape = ShapeKey{4, length};
  context.base_bytes = base;
  context.budget_bytes = budget;
  return context;
}

// Measured peak of the plan above the step's base.
std::int64_t peak_of(const PlanPtr& plan, const StepContext& context) {
  return (kModel.run(context, {plan, false}).peak_bytes - context.base_bytes).count();
}

std::int64_t peak_of_all(Mode mode, std::int64_t length) {
  Plan plan;
  plan.modes.assign(kModel.layers, mode);
  const StepContext context = context_at(length, Bytes(0), kAmple);
  return peak_of(std::make_shared<const Plan>(plan), context);
}

std::size_t recomputed(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count(plan.modes, Mode::full()));
}

// Halfway between checkpoint-all and keep-all at the longest shape.
Bytes tight_budget(std::int64_t length) {
  return Bytes((peak_of_all(Mode::full(), length) + peak_of_all(Mode::keep(), length)) / 2);
}

StaticPolicyOptions static_options() {
  StaticPolicyOptions options;
  options.longest_shape = ShapeKey{4, 512};
  options.costs = kModel.costs(options.longest_shape);
  return options;
}

TEST(StaticPolicy, FreezesThePlanOfTheLongestShape) {
  const auto policy = make_static_policy(static_options());
  policy->on_structure(kModel.structure());
  const StepContext first = context_at(64, Bytes(0), tight_budget(512));
  const PlanPtr plan = policy->begin_step(first).plan;
  EXPECT_EQ(plan->shape, (ShapeKey{4, 512}));
  EXPECT_FALSE(plan->revocable);
  EXPECT_GT(recomputed(*plan), 0U);
  EXPECT_LT(recomputed(*plan), kModel.layers);
  const StepContext longest = context_at(512, Bytes(0), first.budget_bytes);
  EXPECT_LE(peak_of(plan, longest), first.budget_bytes.count());
  EXPECT_EQ(policy->begin_step(longest).plan, plan);
  EXPECT_EQ(policy->begin_step(context_at(512, Bytes(5000), kAmple)).plan, plan);
}

TEST(StaticPolicy, PlansForTheBaseThatTheOptimizersStateWillBring) {
  StaticPolicyOptions options = static_options();
  const Bytes budget = tight_budget(512) + Bytes(3 * kModel.saved_bytes(options.longest_shape));
  options.base_bytes = Bytes(3 * kModel.saved_bytes(options.longest_shape));
  const auto with_base = make_static_policy(options);
  const auto without = make_static_policy(static_options());
  const StepContext first_step = context_at(64, Bytes(0), budget);
  EXPECT_GT(recomputed(*with_base->begin_step(first_step).plan),
            recomputed(*without->begin_step(first_step).plan));
}

TEST(StaticPolicy, RecomputesEverythingWhereTheCostsAreOfAnotherModel) {
  const auto policy = make_static_policy(static_options());
  policy->on_structure(SimulatedModel{.layers = 5}.structure());
  const PlanPtr plan = policy->begin_step(context_at(64, Bytes(0), kAmple)).plan;
  EXPECT_THAT(plan->modes, AllOf(SizeIs(5), Each(Mode::full())));
  EXPECT_THAT(plan->reason, HasSubstr("5 layers"));
  policy->on_structure(kModel.structure());
  EXPECT_THAT(policy->begin_step(context_at(64, Bytes(0), kAmple)).plan->modes,
              AllOf(SizeIs(8), Each(Mode::keep())));
}

std::unique_ptr<Policy> oracle_of(std::initializer_list<std::int64_t> lengths) {
  OraclePolicyOptions options;
  for (const std::int64_t length : lengths) {
    options.costs.emplace(ShapeKey{4, length}, kModel.costs(ShapeKey{4, length}));
  }
  auto policy = make_oracle_policy(std::move(options));
  policy->on_structure(kModel.structure());
  return policy;
}

TEST(OraclePolicy, PlansEachShapeOnItsOwnCosts) {
  const auto policy = oracle_of({128, 512});
  const Bytes budget = tight_budget(512);
  const PlanPtr longest = policy->begin_step(context_at(512, Bytes(0), budget)).plan;
  const PlanPtr shorter = policy->begin_step(context_at(128, Bytes(0), budget)).plan;
  EXPECT_GT(recomputed(*longest), 0U);
  EXPECT_EQ(recomputed(*shorter), 0U);
  EXPECT_EQ(longest->shape, (ShapeKey{4, 512}));
  const StepContext context = context_at(512, Bytes(0), budget);
  EXPECT_LE(peak_of(longest, context), budget.count());
  EXPECT_EQ(longest->predicted_peak_bytes.count(), peak_of(longest, context));
  // With no margin a budget of exactly the keep-all peak keeps everything.
  const Bytes exact(peak_of_all(Mode::keep(), 512));
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(512, Bytes(0), exact)).plan), 0U);
}

// At length 512, with a mode that holds half the bytes for next to nothing.
StepCosts costs_with_half() {
  const ShapeKey shape{4, 512};
  StepCosts costs = kModel.costs(shape);
  for (LayerCosts& layer : costs.layers) {
    LayerModeCosts half = layer.modes[0];
    half.mode = Mode::selective(0);
    half.forward_net_bytes -= kModel.saved_bytes(shape) / 2;
    half.backward_peak_bytes += kModel.saved_bytes(shape) / 2;
    half.extra_seconds = 0.01 * layer.modes[1].extra_seconds;
    layer.modes.push_back(half);
  }
  return costs;
}

TEST(OraclePolicy, UsesEveryModeThatItsCostsHave) {
  OraclePolicyOptions options;
  EXPECT_FALSE(options.has_selective());
  options.costs.emplace(ShapeKey{4, 512}, costs_with_half());
  const auto policy = make_oracle_policy(std::move(options));
  EXPECT_TRUE(policy->wants_menus()) << "they have to be found where they are to run";
  EXPECT_FALSE(oracle_of({512})->wants_menus());
  policy->on_structure(kModel.structure());
  const PlanPtr plan = policy->begin_step(context_at(512, Bytes(0), tight_budget(512))).plan;
  EXPECT_GT(std::ranges::count(plan->modes, Mode::selective(0)), 0) << plan->reason;
  EXPECT_EQ(recomputed(*plan), 0U) << plan->reason;
  // Where that step left no room to find the menu the next one leaves the most, until it is known.
  const StepContext context = context_at(512, Bytes(0), tight_budget(512));
  policy->end_step(kModel.run(context, {plan, false}));
  const PlanPtr search = policy->begin_step(context).plan;
  EXPECT_EQ(recomputed(*search), kModel.layers - 1) << search->reason;
  EXPECT_EQ(search->modes[0], Mode::selective(0));
  EXPECT_TRUE(search->revocable);
  policy->end_step(kModel.run(context, {search, false}));
  policy->end_step(kModel.run(context, {policy->begin_step(context).plan, false}));
  // No room even so: then a plan that can be run.
  const PlanPtr without = policy->begin_step(context).plan;
  EXPECT_EQ(std::ranges::count(without->modes, Mode::selective(0)), 0);
  EXPECT_LT(recomputed(*without), kModel.layers);
  StepStructure structure = kModel.structure();
  structure.menus = {{7, {"a step"}}};
  policy->on_structure(structure);
  EXPECT_EQ(policy->begin_step(context).plan->modes, plan->modes);
}

// A class that was never kept has no menu here: only its layers do without.
TEST(OraclePolicy, DoesWithoutSelectiveModesInClassesWithoutAMenuAlone) {
  StepCosts costs = costs_with_half();
  const std::size_t others = costs.layers.size() / 2;
  StepStructure structure = kModel.structure();
  for (std::size_t i = others; i < costs.layers.size(); ++i) {
    costs.layers[i].layer_class = structure.layers[i].layer_class = 1;
  }
  structure.menus = {{7, {"a step"}}, {0, {}}};
  OraclePolicyOptions options;
  options.costs.emplace(ShapeKey{4, 512}, costs);
  const auto policy = make_oracle_policy(std::move(options));
  policy->on_structure(structure);
  const StepContext context = context_at(512, Bytes(0), tight_budget(512));
  PlanPtr plan = policy->begin_step(context).plan;
  for (int step = 0; step < 3; ++step) {  // the search is over then
    policy->end_step(kModel.run(context, {plan, false}));
    plan = policy->begin_step(context).plan;
  }
  const auto first = plan->modes.begin();
  const auto border = first + static_cast<std::ptrdiff_t>(others);
  EXPECT_GT(std::count(first, border, Mode::selective(0)), 0) << plan->reason;
  EXPECT_EQ(std::count(border, plan->modes.end(), Mode::selective(0)), 0) << plan->reason;
}

TEST(OraclePolicy, NeedsNoHooksOnceAPlanHasHeld) {
  const auto policy = oracle_of({512});
  const PlanPtr plan = policy->begin_step(context_at(512, Bytes(0), tight_budget(512))).plan;
  EXPECT_GT(recomputed(*plan), 0U);
  EXPECT_FALSE(plan->revocable) << "however little is left";
  EXPECT_TRUE(plan->revocable_until_held);
  EXPECT_FALSE(policy->begin_step(context_at(512, Bytes(0), Bytes(0))).plan->revocable_until_held);
}

TEST(OraclePolicy, RemembersPlansByShapeBaseAndBudget) {
  const auto policy = oracle_of({128, 512});
  const Bytes budget = tight_budget(512);
  const PlanPtr plan = policy->begin_step(context_at(512, Bytes(0), budget)).plan;
  EXPECT_EQ(policy->begin_step(context_at(512, Bytes(0), budget)).plan, plan);
  const Bytes base(2 * kModel.saved_bytes(ShapeKey{4, 512}));
  const PlanPtr squeezed = policy->begin_step(context_at(512, base, budget)).plan;
  EXPECT_GT(recomputed(*squeezed), recomputed(*plan));
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(512, Bytes(0), kAmple)).plan), 0U);
}

TEST(OraclePolicy, RecomputesEverythingAtAShapeWithoutCosts) {
  const PlanPtr plan = oracle_of({128})->begin_step(context_at(256, Bytes(0), kAmple)).plan;
  EXPECT_THAT(plan->modes, AllOf(SizeIs(8), Each(Mode::full())));
  EXPECT_THAT(plan->reason, HasSubstr("4x256"));
}

TEST(OraclePolicy, SaysWhereNothingFits) {
  const PlanPtr plan = oracle_of({512})->begin_step(context_at(512, Bytes(0), Bytes(1000))).plan;
  EXPECT_FALSE(plan->feasible);
  EXPECT_THAT(plan->modes, SizeIs(8));
}

TEST(OraclePolicy, StaysBoundedWhenTheBaseNeverRepeats) {
  const auto policy = oracle_of({64});
  std::uint64_t last = 0;
  for (std::int64_t step = 0; step < 9000; ++step) {
    const PlanPtr plan = policy->begin_step(context_at(64, Bytes(step), kAmple)).plan;
    ASSERT_GT(plan->id, last);
    last = plan->id;
  }
}

}  // namespace
}  // namespace pudica
