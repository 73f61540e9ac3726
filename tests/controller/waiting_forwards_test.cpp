// Forwards of different layers that share a backward: what one says of the other.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"
#include "controller/shared_step.h"

namespace pudica::testing {
namespace {

LayerCosts layer_of(std::uint16_t layer_class, std::int64_t residue_bytes) {
  LayerCosts layer;
  layer.layer_class = layer_class;
  layer.residue_bytes = residue_bytes;
  return layer;
}

StepCosts costs_of(std::vector<LayerCosts> layers, double seconds) {
  StepCosts costs;
  costs.layers = std::move(layers);
  costs.step_seconds = seconds;
  costs.head_net_bytes = costs.layers.front().layer_class;
  return costs;
}

TEST(Followed, GradientsAppearInTheLastForwardThatRunsALayer) {
  const std::vector<StepCosts> forwards{costs_of({layer_of(1, 10), layer_of(2, 20)}, 1),
                                        costs_of({layer_of(2, 20)}, 2),
                                        costs_of({layer_of(3, 30)}, 4)};
  const StepCosts all = followed(forwards);
  std::vector<std::int64_t> left;
  for (const LayerCosts& layer : all.layers) left.push_back(layer.residue_bytes);
  EXPECT_EQ(left, (std::vector<std::int64_t>{10, 0, 20, 30}));
  EXPECT_DOUBLE_EQ(all.step_seconds, 7);
  EXPECT_EQ(all.head_net_bytes, 3) << "the last one's, behind which the backward begins";
}

class Owner final : public ForwardOwner {
 public:
  [[nodiscard]] Result<StepModel> model_at(std::uint8_t /*kind*/,
                                           const StepContext& /*context*/) const override {
    return Error{ErrorCode::kUnavailable, "none"};
  }
  void learn_waited(std::uint8_t /*kind*/, const WaitedForward& /*waited*/) override {}
};

// Steps of two kinds by turns; `waits`: of the second as well.
void end_pair(WaitingForwards& waiting, const ForwardKind& first, const ForwardKind& second) {
  StepContext context{.shape = ShapeKey{2, 8}};
  waiting.begin(context);
  waiting.ended({1, first, true}, context, /*waits=*/true);
  context.shape = ShapeKey{4, 16};
  context.waiting_forwards = 1;
  waiting.begin(context);
  waiting.ended({2, second, true}, context, /*waits=*/false);
}

TEST(WaitingForwards, AKindIsFollowedByAnotherUntilItsBackwardComesWithIt) {
  Owner owner;
  WaitingForwards waiting;
  const ForwardKind first{&owner, 0};
  const ForwardKind second{&owner, 1};
  end_pair(waiting, first, second);
  ASSERT_NE(waiting.follower(first), nullptr);
  EXPECT_EQ(waiting.follower(first)->kind, second);
  EXPECT_EQ(waiting.follower(first)->shape, (ShapeKey{4, 16}));
  EXPECT_EQ(waiting.follower(second), nullptr);
  EXPECT_EQ(waiting.ran().size(), 1U);
  const StepContext alone{.shape = ShapeKey{2, 8}};
  waiting.begin(alone);
  EXPECT_TRUE(waiting.ran().empty());
  waiting.ended({3, first, true}, alone, /*waits=*/false);
  EXPECT_EQ(waiting.follower(first), nullptr);
}

TEST(WaitingForwards, OneOfItsOwnKindFollowsNone) {
  Owner owner;
  WaitingForwards waiting;
  end_pair(waiting, {&owner, 0}, {&owner, 0});
  EXPECT_EQ(waiting.follower({&owner, 0}), nullptr);
}

TEST(WaitingForwards, WhatIsNotShownIsNotWaitedForForEver) {
  Owner owner;
  WaitingForwards waiting;
  const ForwardKind kind{&owner, 0};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(waiting.may_be_shown(kind)) << i;
    waiting.note_shown(kind, false);
  }
  EXPECT_FALSE(waiting.may_be_shown(kind));
  EXPECT_TRUE(waiting.may_be_shown({&owner, 1}));
  waiting.note_shown(kind, true);
  EXPECT_TRUE(waiting.may_be_shown(kind));
  for (int i = 0; i < 3; ++i) waiting.note_shown(kind, false);
  waiting.forget(&owner);
  EXPECT_TRUE(waiting.may_be_shown(kind));
}

TEST(WaitingForwards, NothingIsKnownOfWhoIsGone) {
  Owner owner;
  Owner other;
  WaitingForwards waiting;
  end_pair(waiting, {&owner, 0}, {&other, 1});
  waiting.forget(ForwardKind{&other, 0});
  EXPECT_NE(waiting.follower({&owner, 0}), nullptr);
  waiting.forget(ForwardKind{&other, 1});
  EXPECT_EQ(waiting.follower({&owner, 0}), nullptr);
  end_pair(waiting, {&owner, 0}, {&other, 1});
  waiting.forget(&other);
  EXPECT_EQ(waiting.follower({&owner, 0}), nullptr);
  waiting.forget(&owner);
  EXPECT_TRUE(waiting.ran().empty());
}

bool is_of_backward(const SegmentObservation& item) {
  return item.key.kind == SegmentKind::kBackward || item.key.kind == SegmentKind::kRecompute ||
         item.key.kind == SegmentKind::kEpilogue;
}

// Two towers, each with a controller of its own as every way of calling a Python model has, and
// forwards of both before each backward. The second one's classes are other ones.
class Towers {
 public:
  Towers() : second({.encoder_layers = 4, .seed = 5}) {
    ControllerOptions options;
    options.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
    options.waiting = make_waiting_forwards();
    for (int i = 0; i < 2; ++i) controllers.push_back(make_controller(options));
  }

  struct Step {
    StepDecision of_first, of_second;
    std::int64_t told_behind = 0;  // segments of the first one's backward
  };

  Step pair(std::int64_t length, std::int64_t second_length) {
    Step out;
    StepContext context = first.context({8, length}, budget);
    context.step = ++step_;
    context.following_forwards = is_sure() ? 1 : 0;
    context.forwards_are_sure = is_sure();
    out.of_first = controllers[0]->begin_step(context);
    StepOutcome outcome = first.run(context, out.of_first);
    WaitedForward waited{context, outcome.plan, {}, {}};
    for (SegmentObservation& item : outcome.segments) {
      if (is_of_backward(item)) waited.segments.push_back(item);
    }
    std::erase_if(outcome.segments, [](const SegmentObservation& item) {
      return is_of_backward(item) || item.key.kind == SegmentKind::kHead ||
             item.key.kind == SegmentKind::kOptimizer;
    });
    const std::int64_t tail = 100 * length;
    if (out.of_first.record) {
      outcome.segments.push_back({SegmentKey::until_next(), -1, {{tail}, tail, tail, 0}});
    }
    outcome.waits = true;
    controllers[0]->on_structure(first.structure());
    controllers[0]->end_step(outcome);

    StepContext last = second.context({4, second_length}, budget);
    last.step = ++step_;
    last.waiting_forwards = 1;
    last.forwards_are_sure = is_sure();
    last.base_bytes += Bytes(tail);
    out.of_second = controllers[1]->begin_step(last);
    StepOutcome end = second.run(last, out.of_second);
    for (SegmentObservation& item : end.segments) rename(item.key);
    if (out.of_first.record && out.of_second.record) end.waited = {waited};
    for (const WaitedForward& told : end.waited) out.told_behind += std::ssize(told.segments);
    StepStructure structure = second.structure();
    for (StepStructure::Layer& layer : structure.layers) layer.layer_class += kOther;
    structure.class_names.insert(structure.class_names.begin(), kOther, "of the first");
    controllers[1]->on_structure(structure);
    controllers[1]->end_step(end);
    return out;
  }

  // How many follow shows in the first pair.
  [[nodiscard]] bool is_sure() const { return step_ > 8; }

  Bytes budget{std::int64_t{1} << 40};
  SyntheticModel first{SyntheticSpec{}};
  SyntheticModel second;
  std::vector<std::unique_ptr<Controller>> controllers;

 private:
  static constexpr std::uint16_t kOther = 4;
  static void rename(SegmentKey& key) {
    if (key.is_of_kind() || key.kind == SegmentKind::kOptimizer) return;
    key.layer_class += kOther;
  }
  std::uint64_t step_ = 0;
};

TEST(TowersApart, TheOneThatAlwaysWaitsIsPlannedLikeTheOther) {
  Towers towers;
  for (const std::int64_t length : lengths(12, 3)) towers.pair(length, 600 - length);
  const auto last = towers.pair(320, 256);
  EXPECT_EQ(towers.controllers[0]->state(), ControllerState::kPlanning);
  EXPECT_EQ(towers.controllers[1]->state(), ControllerState::kPlanning);
  EXPECT_LE(towers.controllers[0]->snapshot().counters.learning_steps, 5);
  EXPECT_TRUE(last.of_first.plan->predicts_peak()) << last.of_first.plan->reason;
  EXPECT_NE(last.of_first.plan->reason.find("forward 1 of 2"), std::string::npos);
}

// Only where the first one was: what the backward shows of it teaches nothing else.
TEST(TowersApart, TheSecondIsRecordedWhereTheFirstOneWas) {
  Towers towers;
  int recorded = 0;
  int both = 0;
  for (const std::int64_t length : lengths(24, 3)) {
    const auto step = towers.pair(length, 600 - length);
    recorded += step.of_first.record ? 1 : 0;
    both += step.told_behind > 0 ? 1 : 0;
  }
  EXPECT_EQ(both, recorded);
  EXPECT_GE(recorded, 2);
  EXPECT_LT(recorded, 12);
}

// At what the first would need twice, as one that is followed by its like, and at what the two
// need.
TEST(TowersApart, ThePlanOfTheFirstIsMadeWithTheSecondInMind) {
  Towers towers;
  for (const std::int64_t length : lengths(12, 3)) towers.pair(512, length);
  const auto keeps_all = [](const Plan& plan) {
    return std::ranges::all_of(plan.modes, [](Mode mode) { return mode == Mode::keep(); });
  };
  EXPECT_TRUE(keeps_all(*towers.pair(512, 64).of_first.plan));
  const StepCosts first = towers.first.true_costs({8, 512}, false);
  const StepCosts second = towers.second.true_costs({4, 64}, false);
  const std::vector<std::uint8_t> keep(first.layers.size() + second.layers.size(), 0);
  const std::int64_t both = step_peak_bytes(followed(std::vector<StepCosts>{first, second}), keep);
  const std::vector<std::uint8_t> twice(2 * first.layers.size(), 0);
  ASSERT_LT(both * 11 / 10, step_peak_bytes(followed(std::vector<StepCosts>{first, first}), twice));
  towers.budget = towers.first.settled_base() + Bytes(both * 11 / 10);
  EXPECT_TRUE(keeps_all(*towers.pair(512, 64).of_first.plan));
}

TEST(TowersApart, AControllerThatIsGoneIsMissedByNobody) {
  Towers towers;
  for (const std::int64_t length : lengths(12, 3)) towers.pair(length, 600 - length);
  towers.controllers[1] = make_controller({});
  StepContext context = towers.first.context({8, 320}, towers.budget);
  context.following_forwards = 1;
  EXPECT_NE(towers.controllers[0]->begin_step(context).plan, nullptr);
}

}  // namespace
}  // namespace pudica::testing
