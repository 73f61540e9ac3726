#include "torch/step_profile.h"

#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

constexpr std::int64_t kWeights = 100;  // what each layer but the last makes and nobody reads

// Three layers that make 10 bytes each, and a temporary of 5 in front of the second.
class UnreadTest : public ::testing::Test {
 protected:
  UnreadTest() : recorder_(64) {
    step_.calls.resize(3);
    for (RecordedCall& call : step_.calls) call.mode = Mode::full();
    mark(MarkKind::kStepBegin, -1);
    forward(0, kWeights);
    allocate(5);
    allocate(-5);
    forward(1, kWeights);
    step_.calls[0].unread_frees = {allocate(-kWeights)};
    forward(2, 0);
    step_.calls[1].unread_frees = {allocate(-kWeights)};
    allocate(3);
    for (const std::int32_t layer : {2, 1, 0}) mark(MarkKind::kBorder, layer);
    mark(MarkKind::kBackwardEnd, -1);
    mark(MarkKind::kStepEnd, -1);
  }

  void mark(MarkKind kind, std::int32_t layer) { recorder_.mark(kind, layer); }
  std::int64_t allocate(std::int64_t bytes) {
    recorder_.event(bytes, nullptr);
    return events_++;
  }
  void forward(std::int32_t layer, std::int64_t weights) {
    mark(MarkKind::kForwardBegin, layer);
    allocate(10);
    if (weights != 0) allocate(weights);
    mark(MarkKind::kForwardEnd, layer);
  }

  // The only one of this kind and layer; nullptr: there is none.
  const SegmentObservation* find(SegmentKind kind, std::int32_t layer) {
    profile_ = build_profile(recorder_, step_);
    const auto is_it = [=](const SegmentObservation& item) {
      return item.key.kind == kind && item.layer == layer;
    };
    const auto found = std::ranges::find_if(profile_.observations, is_it);
    return found == profile_.observations.end() ? nullptr : &*found;
  }

  Recorder recorder_;
  RecordedStep step_;
  StepProfile profile_;
  std::int64_t events_ = 0;
};

TEST_F(UnreadTest, GoesWhenItsLayerEnds) {
  for (const std::int32_t layer : {0, 1, 2}) {
    const auto* forward = find(SegmentKind::kForward, layer);
    ASSERT_NE(forward, nullptr);
    EXPECT_EQ(forward->sample.net_bytes, 10) << layer;
  }
  EXPECT_EQ(find(SegmentKind::kGap, 2), nullptr) << "nothing else happens there";
  const auto* head = find(SegmentKind::kHead, -1);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->sample.net_bytes, 3) << "it went before the head";
}

TEST_F(UnreadTest, WhatRunsMeanwhileIsToldBothWays) {
  const auto* gap = find(SegmentKind::kGap, 1);
  ASSERT_TRUE(gap != nullptr && gap->behind_holder);
  EXPECT_EQ(gap->sample.peak_bytes, kWeights + 5);
  EXPECT_EQ(gap->behind_holder->peak_bytes, 5);
  EXPECT_EQ(gap->sample.net_bytes, 0);
  const auto* forward = find(SegmentKind::kForward, 1);
  ASSERT_TRUE(forward != nullptr && forward->behind_holder);
  EXPECT_EQ(forward->sample.peak_bytes, kWeights + 10 + kWeights) << "the older one's and its own";
  EXPECT_EQ(forward->behind_holder->peak_bytes, 10 + kWeights);
  EXPECT_EQ(forward->behind_holder->net_bytes, 10);
  EXPECT_FALSE(find(SegmentKind::kForward, 0)->behind_holder);
}

// What frees it is the revocation: a call that nobody revokes holds it.
TEST_F(UnreadTest, OfARevokedLayerStaysWhereItWasMeasured) {
  step_.calls[0].disturbed = true;
  EXPECT_EQ(find(SegmentKind::kForward, 0)->sample.net_bytes, 10 + kWeights);
  EXPECT_FALSE(find(SegmentKind::kForward, 1)->behind_holder);
  const auto* gap = find(SegmentKind::kGap, 2);
  ASSERT_NE(gap, nullptr);
  EXPECT_EQ(gap->sample.net_bytes, -kWeights);
}

// Two layers that make an output of 10 and a cast of 7 or 8 bytes, which the head frees before and
// behind what it makes itself; the last one's output as well.
class ReleasedTest : public ::testing::Test {
 protected:
  ReleasedTest() : recorder_(64) {
    step_.calls.resize(2);
    for (RecordedCall& call : step_.calls) call.mode = Mode::full();
    recorder_.mark(MarkKind::kStepBegin, -1);
    for (const std::int32_t layer : {0, 1}) {
      recorder_.mark(MarkKind::kForwardBegin, layer);
      event(10, layer);
      event(7 + layer, 10 + layer);
      event(2, 20);
      event(-2, 20);
      recorder_.mark(MarkKind::kForwardEnd, layer);
    }
    event(5, 20);  // where a layer had something before
    event(-7, 10);
    event(30, 10);
    event(-8, 11);
    event(40, 21);
    step_.calls[1].early_frees = {events_};
    event(-10, 1);
    event(-30, 10);
    event(-5, 20);
    for (const std::int32_t layer : {1, 0}) recorder_.mark(MarkKind::kBorder, layer);
    recorder_.mark(MarkKind::kBackwardEnd, -1);
    recorder_.mark(MarkKind::kStepEnd, -1);
  }

  void event(std::int64_t bytes, std::size_t place) {
    recorder_.event(bytes, places_.data() + place);
    ++events_;
  }

  static const SegmentObservation* find(const StepProfile& profile, const SegmentKey& key,
                                        std::int32_t layer) {
    const auto found = std::ranges::find_if(profile.observations, [&](const auto& item) {
      return item.key == key && item.layer == layer;
    });
    return found == profile.observations.end() ? nullptr : &*found;
  }

  const SegmentKey head_{SegmentKind::kHead, 0, Mode::keep(), 0};
  const SegmentKey forward_{SegmentKind::kForward, 0, Mode::full(), 0};
  std::array<char, 32> places_{};
  Recorder recorder_;
  RecordedStep step_;
  std::int64_t events_ = 0;
};

TEST_F(ReleasedTest, IsTheLayersAndNotTheHeads) {
  const StepProfile profile = build_profile(recorder_, step_);
  const auto* head = find(profile, head_, -1);
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->sample.net_bytes, 30) << "what it made, less the last layer's output";
  EXPECT_EQ(head->sample.peak_bytes, 75);
  for (const std::int32_t layer : {0, 1}) {
    const auto* forward = find(profile, forward_, layer);
    ASSERT_NE(forward, nullptr);
    EXPECT_EQ(forward->released_bytes, 7 + layer);
    EXPECT_EQ(forward->sample.net_bytes, 17 + layer) << "it is there until then";
  }
  const auto* until = find(profile, SegmentKey::until_release(), -1);
  ASSERT_NE(until, nullptr);
  EXPECT_EQ(until->sample.net_bytes, 35) << "up to the last of it";
  EXPECT_EQ(until->sample.peak_bytes, 35);
}

TEST_F(ReleasedTest, IsNotToldOfALayerThatWasRevoked) {
  step_.calls[0].disturbed = true;
  const StepProfile profile = build_profile(recorder_, step_);
  EXPECT_FALSE(find(profile, forward_, 0)->released_bytes);
  EXPECT_EQ(find(profile, forward_, 1)->released_bytes, 8);
  EXPECT_EQ(find(profile, head_, -1)->sample.net_bytes, 30) << "the head is what it was";
}

TEST_F(ReleasedTest, IsNotKnownWhereTheBackwardIsToCome) {
  step_.waits = true;
  step_.calls.resize(1);
  Recorder one(64);
  one.mark(MarkKind::kStepBegin, -1);
  one.mark(MarkKind::kForwardBegin, 0);
  one.event(10, places_.data());
  one.mark(MarkKind::kForwardEnd, 0);
  one.mark(MarkKind::kStepEnd, -1);
  const StepProfile profile = build_profile(one, step_);
  ASSERT_NE(find(profile, forward_, 0), nullptr);
  EXPECT_FALSE(find(profile, forward_, 0)->released_bytes);
}

}  // namespace
}  // namespace pudica::hooks
