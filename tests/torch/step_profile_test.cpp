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

}  // namespace
}  // namespace pudica::hooks
