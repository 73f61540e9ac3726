// The policies whose plan depends on the number of layers alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/policies.h"

namespace pudica {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

StepStructure structure_of(std::size_t layers) {
  StepStructure structure;
  structure.layers.resize(layers);
  structure.class_names = {"Block"};
  return structure;
}

StepContext context_at(std::int64_t length) {
  StepContext context;
  context.shape = ShapeKey{4, length};
  context.budget_bytes = Bytes(1 << 20);
  return context;
}

PlanPtr plan_of(Policy& policy, std::size_t layers) {
  policy.on_structure(structure_of(layers));
  return policy.begin_step(context_at(128)).plan;
}

TEST(NonePolicy, KeepsEverythingWithoutHooks) {
  const auto policy = make_none_policy();
  const PlanPtr early = policy->begin_step(context_at(8)).plan;
  EXPECT_EQ(early->default_mode, Mode::keep());
  EXPECT_FALSE(early->revocable);
  const PlanPtr plan = plan_of(*policy, 3);
  EXPECT_THAT(plan->modes, ElementsAre(Mode::keep(), Mode::keep(), Mode::keep()));
  EXPECT_FALSE(plan->revocable);
  EXPECT_FALSE(policy->begin_step(context_at(8)).record);
}

TEST(FullPolicy, RecomputesEverythingFromTheFirstStep) {
  const auto policy = make_full_policy();
  EXPECT_EQ(policy->begin_step(context_at(8)).plan->default_mode, Mode::full());
  EXPECT_THAT(plan_of(*policy, 5)->modes, AllOf(SizeIs(5), Each(Mode::full())));
}

TEST(DtrPolicy, KeepsEverythingRevocablyAndPredictsNothing) {
  const auto policy = make_dtr_policy({EvictionRule::kLru, 2});
  const PlanPtr plan = plan_of(*policy, 3);
  EXPECT_THAT(plan->modes, ElementsAre(Mode::keep(), Mode::keep(), Mode::keep()));
  EXPECT_TRUE(plan->revocable);
  EXPECT_FALSE(plan->predicts_peak());
  EXPECT_FALSE(make_reactive_policy()->eviction().has_value());
}

TEST(SacPolicy, RecomputesEveryLayerButForTheOperatorsNamed) {
  const auto policy = make_sac_policy({"mm", "gelu"});
  EXPECT_THAT(policy->keep_operators(), ElementsAre("mm", "gelu"));
  EXPECT_EQ(policy->begin_step(context_at(8)).plan->default_mode, Mode::full());
  const PlanPtr plan = plan_of(*policy, 5);
  EXPECT_THAT(plan->modes, AllOf(SizeIs(5), Each(Mode::full())));
  EXPECT_THAT(plan->reason, ::testing::HasSubstr("mm, gelu"));
  EXPECT_THAT(make_full_policy()->keep_operators(), ::testing::IsEmpty());
}

TEST(EveryNPolicy, RecomputesLayersZeroNTwoN) {
  EXPECT_THAT(plan_of(*make_every_n_policy(3), 7)->modes,
              ElementsAre(Mode::full(), Mode::keep(), Mode::keep(), Mode::full(), Mode::keep(),
                          Mode::keep(), Mode::full()));
  EXPECT_THAT(plan_of(*make_every_n_policy(1), 4)->modes, Each(Mode::full()));
  EXPECT_THAT(plan_of(*make_every_n_policy(INT64_MAX), 2)->modes,
              ElementsAre(Mode::full(), Mode::keep()));
  EXPECT_THROW((void)make_every_n_policy(0), BugError);
}

TEST(EveryNPolicy, RecomputesAllWhileTheLayersAreUnknown) {
  EXPECT_EQ(make_every_n_policy(2)->begin_step(context_at(8)).plan->default_mode, Mode::full());
}

TEST(SqrtPolicy, JoinsSegmentsOfTheRootOfTheLayers) {
  const auto policy = make_sqrt_policy();
  EXPECT_THAT(plan_of(*policy, 9)->joined, ElementsAre(0, 1, 1, 0, 1, 1, 0, 1, 1));
  EXPECT_THAT(plan_of(*policy, 11)->joined, ElementsAre(0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1));
  EXPECT_THAT(plan_of(*policy, 15)->joined,
              ElementsAre(0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1));
  EXPECT_THAT(plan_of(*policy, 16)->joined,
              ElementsAre(0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1));
  EXPECT_THAT(plan_of(*policy, 3)->joined, ElementsAre(0, 0, 0));
  EXPECT_THAT(plan_of(*policy, 16)->modes, AllOf(SizeIs(16), Each(Mode::full())));
}

TEST(ReactivePolicy, KeepsEverythingRevocablyAndNeverRecords) {
  const auto policy = make_reactive_policy();
  const PlanPtr plan = plan_of(*policy, 4);
  EXPECT_THAT(plan->modes, AllOf(SizeIs(4), Each(Mode::keep())));
  EXPECT_TRUE(plan->revocable);
  EXPECT_FALSE(policy->begin_step(context_at(4096)).record);
}

TEST(FixedPolicies, PublishOnePlanForAllShapesAndANewOneForNewLayers) {
  const auto policy = make_full_policy();
  const PlanPtr first = plan_of(*policy, 4);
  EXPECT_EQ(policy->begin_step(context_at(999)).plan, first);
  policy->on_structure(structure_of(4));
  EXPECT_EQ(policy->begin_step(context_at(999)).plan, first);
  const PlanPtr second = plan_of(*policy, 6);
  EXPECT_NE(second->id, first->id);
  EXPECT_EQ(second->modes.size(), 6U);
  EXPECT_EQ(first->modes.size(), 4U);
}

}  // namespace
}  // namespace pudica
