// Forwards that share a backward: each is planned with the others in mind.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"
#include "controller/shared_step.h"

namespace pudica::testing {
namespace {

const ShapeKey kShape{8, 384};

void learn(Harness& harness) {
  for (const std::int64_t length : {96, 160, 224, 320, 384}) {
    harness.step({8, length}, harness.budget_at({8, 512}, 1.5));
  }
}

std::int64_t held_after_forward(const StepCosts& costs, const std::vector<std::uint8_t>& choice) {
  std::int64_t live = 0;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    live += costs.layers[i].gap_net_bytes + costs.layers[i].modes[choice[i]].forward_net_bytes;
  }
  return live;
}

TEST(ControllerShared, TheFirstForwardLeavesRoomForTheSecond) {
  for (const double share : {0.6, 0.9, 1.2, 1.5}) {
    SCOPED_TRACE(share);
    Harness harness{SyntheticSpec{}};
    learn(harness);
    const StepCosts costs = harness.model.true_costs(kShape, false);
    const Bytes budget = harness.budget_at(kShape, share);
    StepContext context = harness.model.context(kShape, budget);
    context.following_forwards = 1;
    const PlanPtr first = harness.controller->begin_step(context).plan;
    const auto first_choice = choice_of(*first, costs);
    EXPECT_EQ(first->modes.size(), costs.layers.size());
    EXPECT_TRUE(first->revocable);
    EXPECT_FALSE(first->predicts_peak());
    EXPECT_NE(first->reason.find("forward 1 of 2"), std::string::npos) << first->reason;

    context.following_forwards = 0;
    context.waiting_forwards = 1;
    context.base_bytes += Bytes(held_after_forward(costs, first_choice));
    const PlanPtr second = harness.controller->begin_step(context).plan;
    const std::int64_t peak = step_peak_bytes(costs, choice_of(*second, costs));
    EXPECT_LE(context.base_bytes + Bytes(peak), budget);
    EXPECT_EQ(harness.controller->snapshot().counters.infeasible_steps, 0);
  }
}

// Forwards that are always two learn their menu in the second, where they are short of room.
TEST(ControllerShared, MenusAreMeasuredThere) {
  Harness harness({.menu_steps = 2});
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.9);
  int measuring = 0;
  for (int step = 0; step < 8; ++step) {
    StepContext context = harness.model.context({8, 300 + 8 * step}, budget);
    context.following_forwards = 1;
    harness.controller->begin_step(context);
    context.following_forwards = 0;
    context.waiting_forwards = 1;
    const StepDecision decision = harness.controller->begin_step(context);
    measuring += decision.record && selective_layers(*decision.plan) > 0 ? 1 : 0;
  }
  EXPECT_GT(measuring, 0);
}

TEST(ControllerShared, WhatEarlierForwardsHoldMakesNoStepInfeasible) {
  Harness harness{SyntheticSpec{}};
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.5);
  StepContext context = harness.model.context(kShape, budget);
  const auto before = harness.controller->estimate(kShape, budget);
  context.waiting_forwards = 1;
  context.base_bytes = budget;
  const PlanPtr plan = harness.controller->begin_step(context).plan;
  EXPECT_TRUE(plan->feasible) << plan->reason;
  EXPECT_EQ(std::ranges::count(plan->modes, Mode::keep()), 0);
  EXPECT_EQ(harness.controller->snapshot().counters.infeasible_steps, 0);
  const auto after = harness.controller->estimate(kShape, budget);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(before->floor_peak_bytes, after->floor_peak_bytes)
      << "what one forward holds for another is no part of what a step begins with";
}

// The graph of a loss that nobody went back through: it goes as the next one takes its variable, or
// is given back before.
TEST(ControllerShared, WhatThoseThatWaitHoldUntilThisOneReturnsIsInNoPlansWay) {
  Harness harness{SyntheticSpec{}};
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.5);
  StepContext context = harness.model.context(kShape, budget);
  context.waiting_forwards = 1;
  const PlanPtr without = harness.controller->begin_step(context).plan;
  context.returning_bytes = budget;
  const PlanPtr with = harness.controller->begin_step(context).plan;
  EXPECT_EQ(with->modes, without->modes);
  EXPECT_EQ(with->joined, without->joined);
  EXPECT_TRUE(with->feasible);
}

// What a step of a forward that waits tells beside its layers.
void tell_what_comes_behind(Harness& harness, const ShapeKey& shape, std::int64_t bytes) {
  StepContext context = harness.model.context(shape, Bytes(0));
  context.following_forwards = 1;
  const StepDecision decision = harness.controller->begin_step(context);
  StepOutcome outcome;
  outcome.context = context;
  outcome.plan = decision.plan;
  outcome.waits = true;
  outcome.segments.push_back(
      {SegmentKey::until_next(), -1, {{bytes, bytes, -bytes}, bytes, 2 * bytes, 0}});
  harness.controller->end_step(outcome);
}

struct Pair {
  ShapeKey first;
  ShapeKey second;
};

// What the two steps need, and what their plans say. No gradients are there, the optimizer aside.
struct PairPeaks {
  Bytes told_first;
  Bytes first;
  Bytes told_second;
  Bytes second;
  Bytes second_alone;  // on top of what the first one holds
  bool second_is_bound;
};

PairPeaks peaks_of(Harness& harness, const Pair& pair, Bytes budget) {
  const auto tail = [](const ShapeKey& shape) { return 1'000 * shape[1]; };
  PairPeaks out{};
  StepContext context = harness.model.context(pair.first, budget);
  context.forwards_are_sure = true;
  context.following_forwards = 1;
  const PlanPtr first = harness.controller->begin_step(context).plan;
  const StepCosts costs = harness.model.true_costs(pair.first, false);
  const auto choice = choice_of(*first, costs);
  const StepPeaks peaks = step_peaks(costs, choice, first->joined);
  out.told_first = first->predicted_peak_bytes;
  out.first =
      context.base_bytes +
      Bytes(std::max(peaks.forward_bytes, peaks.live_behind_forward + 2 * tail(pair.first)));
  StepContext last = harness.model.context(pair.second, budget);
  last.forwards_are_sure = true;
  last.waiting_forwards = 1;
  const Bytes end = context.base_bytes + Bytes(peaks.live_behind_forward + tail(pair.first));
  last.base_bytes = end;
  const PlanPtr second = harness.controller->begin_step(last).plan;
  const StepCosts own = harness.model.true_costs(pair.second, false);
  const StepPeaks alone = step_peaks(own, choice_of(*second, own), second->joined);
  const StepPeaks behind =
      step_peaks(without_new_gradients(costs, classes_of(costs)), choice, first->joined);
  const Bytes others = end + Bytes(alone.live_behind_backward + behind.backward_bytes -
                                   behind.live_behind_forward - tail(pair.first));
  const Bytes optimizer =
      context.base_bytes + Bytes(alone.live_behind_backward + own.optimizer_peak_bytes);
  out.told_second = second->predicted_peak_bytes;
  out.second_is_bound = second->peak_is_bound;
  out.second_alone =
      std::max(end + Bytes(std::max(alone.until_return_bytes, alone.backward_bytes)), optimizer);
  out.second = std::max(out.second_alone, others);
  return out;
}

TEST(ControllerShared, BothPeaksArePredicted) {
  int bounds = 0;
  for (const double share : {0.5, 1.0, 2.5}) {
    SCOPED_TRACE(share);
    Harness harness{SyntheticSpec{}};
    learn(harness);
    for (const std::int64_t length : {96, 224, 384}) {
      tell_what_comes_behind(harness, {8, length}, 1'000 * length);
    }
    const Bytes budget = harness.budget_at(kShape, share);
    for (const Pair& pair : {Pair{{8, 128}, {8, 384}}, Pair{{8, 300}, {8, 300}}}) {
      const PairPeaks peaks = peaks_of(harness, pair, budget);
      EXPECT_EQ(peaks.told_first, peaks.first);
      EXPECT_EQ(peaks.told_second, peaks.second);
      EXPECT_FALSE(peaks.second_is_bound);
    }
    const PairPeaks longer_first = peaks_of(harness, {{8, 384}, {8, 64}}, budget);
    EXPECT_EQ(longer_first.told_second, longer_first.second);
    const bool first_decides = longer_first.second > longer_first.second_alone;
    EXPECT_EQ(longer_first.second_is_bound, first_decides) << "of its loss nobody knows by itself";
    bounds += first_decides ? 1 : 0;
  }
  EXPECT_GT(bounds, 0);
}

TEST(ControllerShared, NoPeakIsToldWhereTheOtherForwardWasNotPlannedFor) {
  for (const bool planned : {true, false}) {
    Harness harness{SyntheticSpec{}};
    learn(harness);
    for (const std::int64_t length : {96, 384}) {
      tell_what_comes_behind(harness, {8, length}, 1'000 * length);
    }
    const Bytes budget = harness.budget_at(kShape, 2.5);
    StepContext context = harness.model.context(kShape, budget);
    context.forwards_are_sure = true;
    context.following_forwards = planned ? 1 : 0;  // else to have a backward of its own
    harness.controller->begin_step(context);
    context.following_forwards = 0;
    context.waiting_forwards = 1;
    context.base_bytes += Bytes(1'000'000);
    EXPECT_EQ(harness.controller->begin_step(context).plan->predicted_peak_bytes > Bytes(0),
              planned);
    context.returning_bytes = Bytes(500'000);
    EXPECT_EQ(harness.controller->begin_step(context).plan->predicted_peak_bytes, Bytes(0))
        << "of what returns nobody knows when";
  }
}

TEST(ControllerShared, AStepThatWasNoForwardOfItsKindIsNotJudged) {
  Harness harness{SyntheticSpec{}};
  learn(harness);
  const auto predictions = [&] { return harness.controller->snapshot().recent_peaks.size(); };
  const std::size_t before = predictions();
  StepContext context = harness.model.context(kShape, harness.budget_at(kShape, 2.5));
  const StepDecision decision = harness.controller->begin_step(context);
  ASSERT_TRUE(decision.plan->predicts_peak());
  StepOutcome outcome = harness.model.run(context, decision);
  outcome.waits = true;
  harness.controller->end_step(outcome);
  EXPECT_EQ(predictions(), before);
  context = harness.model.context(kShape, harness.budget_at(kShape, 2.5));
  harness.controller->end_step(harness.model.run(context, harness.controller->begin_step(context)));
  EXPECT_EQ(predictions(), before + 1);
}

constexpr std::int64_t kCasts = 40 << 20U;  // of a layer

// One of two forwards under one autocast: the first casts the weights and tells nothing of its
// backward, the second finds them.
PlanPtr run_forward(Harness& harness, const ShapeKey& shape, Bytes budget, bool is_first) {
  StepContext context = harness.model.context(shape, budget);
  (is_first ? context.following_forwards : context.waiting_forwards) = 1;
  context.casts_present = !is_first;
  const StepDecision decision = harness.controller->begin_step(context);
  StepOutcome outcome = harness.model.run(context, decision);
  outcome.waits = is_first;
  std::erase_if(outcome.segments, [is_first](const SegmentObservation& item) {
    return is_first && item.key.kind != SegmentKind::kForward && item.key.kind != SegmentKind::kGap;
  });
  for (SegmentObservation& item : outcome.segments) {
    item.key = item.key.with_casts(!is_first);
    if (!is_first || item.key.kind != SegmentKind::kForward) continue;
    item.sample.deltas.insert(item.sample.deltas.begin(), kCasts);
    item.sample.net_bytes += kCasts;
    item.sample.peak_bytes += kCasts;
  }
  harness.controller->on_structure(harness.model.structure());
  harness.controller->end_step(outcome);
  return decision.plan;
}

TEST(ControllerShared, CastsAreReckonedOnceWhereTheOthersFindThem) {
  Harness harness{SyntheticSpec{}};
  const StepCosts once = harness.model.true_costs(kShape, false);
  const std::vector<std::uint8_t> keep_both(2 * once.layers.size(), 0);
  const std::int64_t casts = kCasts * static_cast<std::int64_t>(once.layers.size());
  const Bytes needed =
      harness.model.settled_base() +
      Bytes(step_peak_bytes(followed(std::vector<StepCosts>{once, once}), keep_both) + casts);
  const Bytes budget = needed + Bytes(needed.count() / 50);
  PlanPtr first;
  for (const std::int64_t length : {96, 160, 224, 320, 384, 300, 260, 384}) {
    first = run_forward(harness, {8, length}, budget, /*is_first=*/true);
    run_forward(harness, {8, length}, budget, /*is_first=*/false);
  }
  EXPECT_NE(first->reason.find("everything fits"), std::string::npos) << first->reason;
  EXPECT_EQ(std::ranges::count(first->modes, Mode::keep()), std::ssize(first->modes));
}

TEST(ControllerShared, TwoForwardsNeedWhatOneNeedsOnTopOfTheOther) {
  const SyntheticModel model{SyntheticSpec{}};
  const StepCosts once = model.true_costs(kShape, false);
  const StepCosts twice = followed(std::vector<StepCosts>{once, once});
  ASSERT_EQ(twice.layers.size(), 2 * once.layers.size());
  const std::vector<std::uint8_t> keep(once.layers.size(), 0);
  const std::vector<std::uint8_t> keep_both(twice.layers.size(), 0);
  EXPECT_EQ(step_peak_bytes(followed(std::vector<StepCosts>{once}), keep),
            step_peak_bytes(once, keep));
  EXPECT_EQ(step_peak_bytes(twice, keep_both),
            held_after_forward(once, keep) + step_peak_bytes(once, keep));
  EXPECT_DOUBLE_EQ(twice.step_seconds, 2 * once.step_seconds);
}

}  // namespace
}  // namespace pudica::testing
