// The head of a step, and what layers release in it.
#include <span>

#include <gtest/gtest.h>

#include "predictor/step/step_model.h"
#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

const ShapeKey kShape{4, 64};

SegmentObservation segment(SegmentKey key, std::int64_t net, std::int64_t peak) {
  return {key, 0, {{}, net, peak, 0}};
}

SegmentKey key_of(SegmentKind kind, Mode mode = Mode::keep()) { return {kind, 0, mode, 0}; }

// One class: kept 900, its gradients 50, casts of 7 until the head where it is recomputed.
std::vector<SegmentObservation> one_class() {
  return {segment(key_of(SegmentKind::kForward), 900, 950),
          segment(key_of(SegmentKind::kBackward), -850, 60),
          segment(key_of(SegmentKind::kForward, Mode::full()), 107, 960),
          segment(key_of(SegmentKind::kBackward, Mode::full()), -50, 870),
          segment(key_of(SegmentKind::kRecompute, Mode::full()), 800, 820),
          segment(key_of(SegmentKind::kHead), 13, 40)};
}

class HeadTest : public ::testing::Test {
 protected:
  void teach(std::vector<SegmentObservation> segments) {
    StepOutcome outcome;
    outcome.context.shape = kShape;
    outcome.segments = std::move(segments);
    store_.observe(outcome, 0);
  }

  [[nodiscard]] StepModel model() const {
    StepStructure structure;
    structure.layers = {{0, 0}, {0, 0}};
    CostsRequest request;
    request.shape = kShape;
    return *build_step_model(store_, structure, request);
  }

  SegmentStore store_{[] { return std::make_unique<FakePredictor>(); }};
};

// A kept layer's casts of biases go in the head as a recomputed one's casts of weights do.
TEST_F(HeadTest, WhatItFreedIsMeasuredInEveryMode) {
  auto segments = one_class();
  segments[0].released_bytes = 3;
  segments[2].released_bytes = 3 + 7;
  teach(segments);
  const LayerCosts layer = model().point.layers[1];
  EXPECT_EQ(layer.residue_bytes, 50 - 3);
  EXPECT_EQ(layer.modes[0].released_bytes, 3);
  EXPECT_EQ(layer.modes[1].released_bytes, 10);
}

TEST_F(HeadTest, ItsPeakUntilTheReleaseIsItsOwnUntilThatWasSeen) {
  teach(one_class());
  EXPECT_EQ(model().point.until_release_peak_bytes, 40);
  teach({segment(SegmentKey::until_release(), 20, 25)});
  const StepModel told = model();
  EXPECT_EQ(told.point.head_peak_bytes, 40);
  EXPECT_EQ(told.point.until_release_peak_bytes, 25);
  EXPECT_GE(told.upper.until_release_peak_bytes, 25);
}

// Behind a layer that lets go of its output in time both parts of it need less.
TEST_F(HeadTest, BothPartsNeedMoreBehindAHolder) {
  auto segments = one_class();
  segments.push_back(segment(SegmentKey::until_release(), 20, 25));
  for (SegmentObservation& item : std::span(segments).last(2)) {
    item.behind_holder = item.sample;
    item.sample.peak_bytes -= item.key.kind == SegmentKind::kHead ? 4 : 6;
  }
  teach(segments);
  const StepCosts costs = model().point;
  EXPECT_EQ(costs.head_peak_bytes, 36);
  EXPECT_EQ(costs.until_release_peak_bytes, 19);
  EXPECT_EQ(costs.head_behind_holder_bytes, 6);
}

}  // namespace
}  // namespace pudica::testing
