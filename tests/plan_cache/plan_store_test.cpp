#include "plan_cache/plan_store.h"

#include <gtest/gtest.h>

namespace pudica {
namespace {

StepContext context_of(std::int64_t length, std::int64_t base, bool gradients = false) {
  return {ShapeKey{4, length}, Bytes(base), Bytes(100000), gradients};
}

CachedPlan entry_of(const StepContext& context, std::int64_t slack, bool recomputes) {
  Plan plan;
  plan.shape = context.shape;
  plan.modes = {recomputes ? Mode::full() : Mode::keep()};
  plan.predicted_extra_seconds = recomputes ? 1 : 0;
  CachedPlan out;
  out.plan = std::make_shared<const Plan>(std::move(plan));
  out.slack_bytes = Bytes(slack);
  out.base_bytes = context.base_bytes;
  return out;
}

TEST(PlanStore, KeepsPlansWithGradientsApart) {
  PlanStore store({}, 0.9);
  store.insert(context_of(8, 100), entry_of(context_of(8, 100), 10, true), 1);
  EXPECT_NE(store.find(context_of(8, 100), 2), nullptr);
  EXPECT_EQ(store.find(context_of(8, 100, true), 2), nullptr);
  EXPECT_EQ(store.hits(), 1);
  EXPECT_EQ(store.misses(), 1);
}

// A forward that finds its weights cast needs less than one that casts them.
TEST(PlanStore, KeepsPlansWithCastsApart) {
  PlanStore store({}, 0.9);
  for (const bool gradients : {false, true}) {
    StepContext context = context_of(8, 100, gradients);
    context.casts_present = true;
    store.insert(context, entry_of(context, 10, true), 1);
    EXPECT_NE(store.find(context, 2), nullptr);
    EXPECT_EQ(store.find(context_of(8, 100, gradients), 2), nullptr);
    EXPECT_EQ(store.entries(gradients).size(), 1U);
    store.erase(context);
    EXPECT_EQ(store.find(context, 2), nullptr);
  }
}

TEST(PlanStore, ABaseBeyondTheSlackNeedsANewPlan) {
  PlanStore store({}, 0.9);
  store.insert(context_of(8, 5000), entry_of(context_of(8, 5000), 10, true), 1);
  EXPECT_NE(store.find(context_of(8, 5010), 2), nullptr);
  EXPECT_EQ(store.find(context_of(8, 5011), 2), nullptr);
  EXPECT_NE(store.find(context_of(8, 4800), 2), nullptr);
  EXPECT_EQ(store.find(context_of(8, 4000), 2), nullptr) << "room for a faster plan";
}

TEST(PlanStore, NewTimesAreNothingToAPlanThatRecomputesNothing) {
  PlanStore store({}, 0.9);
  store.insert(context_of(8, 100), entry_of(context_of(8, 100), 10, true), 1);
  store.insert(context_of(9, 100), entry_of(context_of(9, 100), 10, false), 1);
  CachedPlan cheapest = entry_of(context_of(10, 100), 10, true);
  Plan plan = *cheapest.plan;
  plan.predicted_extra_seconds = 0;  // over the cheapest mode, where none keeps
  cheapest.plan = std::make_shared<const Plan>(plan);
  store.insert(context_of(10, 100), cheapest, 1);
  store.times_changed(1);
  EXPECT_EQ(store.find(context_of(8, 100), 2), nullptr);
  EXPECT_NE(store.find(context_of(9, 100), 2), nullptr);
  EXPECT_EQ(store.find(context_of(10, 100), 2), nullptr);
}

// What the user still holds of the step before counts until the forward returns, and only there.
TEST(PlanStore, WhatReturnsCountsUntilTheForwardReturns) {
  PlanStore store({}, 0.9);
  StepContext context = context_of(8, 5000);
  context.returning_bytes = Bytes(2000);
  CachedPlan entry = entry_of(context, 10, true);
  entry.returning_bytes = context.returning_bytes;
  entry.until_return_bytes = Bytes(60000);
  entry.whole_bytes = Bytes(65000);
  entry.until_return_room_bytes = Bytes(3000);
  store.insert(context, entry, 1);
  const auto holds = [&](std::int64_t base, std::int64_t returning) {
    StepContext next = context_of(8, base);
    next.returning_bytes = Bytes(returning);
    return store.find(next, 2) != nullptr;
  };
  EXPECT_TRUE(holds(5000, 5010));
  EXPECT_FALSE(holds(5000, 5011));
  EXPECT_TRUE(holds(5010, 5000));
  EXPECT_FALSE(holds(5010, 5001));
  EXPECT_FALSE(holds(5011, 0)) << "the rest of the step has less room";
  EXPECT_TRUE(holds(5000, 0)) << "the peak lies behind the return: no faster plan";
  entry.until_return_room_bytes = Bytes(100);
  store.insert(context, entry, 3);
  EXPECT_FALSE(holds(5000, 0)) << "the peak lay before the return: room for a faster plan";
  context.returning_bytes = Bytes(6000);
  EXPECT_EQ(PlanStore::predicted_peak(entry, context), Bytes(71000));
  context.returning_bytes = Bytes(1000);
  EXPECT_EQ(PlanStore::predicted_peak(entry, context), Bytes(70000));
}

TEST(PlanStore, HookFreePlansNeedAmpleRoomStill) {
  PlanStore store({}, 0.9);
  CachedPlan entry = entry_of(context_of(8, 5000), 20000, false);
  Plan plan = *entry.plan;
  plan.revocable = false;
  entry.plan = std::make_shared<const Plan>(plan);
  entry.whole_bytes = Bytes(75000);
  store.insert(context_of(8, 5000), entry, 1);
  EXPECT_NE(store.find(context_of(8, 14000), 2), nullptr);
  EXPECT_EQ(store.find(context_of(8, 16000), 2), nullptr);
}

TEST(PlanStore, PlansOlderThanThePredictionsOnlyWarmUp) {
  PlanStore store({}, 0.9);
  const StepContext context = context_of(8, 100);
  CachedPlan entry = entry_of(context, 10, true);
  entry.choice = {1};
  store.insert(context, entry, 1);
  store.predictions_changed(1);
  EXPECT_EQ(store.find(context, 2), nullptr);
  EXPECT_EQ(store.warm_choice(context_of(4, 100)), std::vector<std::uint8_t>{1});
  store.insert(context, entry, 2);
  EXPECT_NE(store.find(context, 3), nullptr);
}

}  // namespace
}  // namespace pudica
