// Steps that leave layers out (layer drop): planned for all of them, bounded by that.
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

constexpr int kLayers = 6;  // of either stack
const ShapeKey kLongest{8, 512, 512};

class LeftOut : public ::testing::Test {
 protected:
  LeftOut() : harness_({.encoder_layers = kLayers, .decoder_layers = kLayers}) {}

  // Each layer is left out by a chance of one in `rarity`; 0: none is.
  HarnessStep step(const ShapeKey& shape, Bytes budget, std::uint32_t rarity) {
    const auto left = [&] {
      int layers = 0;
      for (int i = 0; i < kLayers; ++i) layers += rarity == 0 || random_() % rarity != 0 ? 1 : 0;
      return std::max(1, layers);
    };
    SyntheticSpec& spec = harness_.model.spec();
    spec.encoder_layers = left();
    spec.decoder_layers = left();
    spec.left_out_layers = 2 * kLayers - spec.encoder_layers - spec.decoder_layers;
    return harness_.step(shape, budget);
  }

  ShapeKey shape() {
    const auto length = [&] { return 32 + static_cast<std::int64_t>(random_() % 61) * 8; };
    return {8, length(), length()};
  }

  Harness harness_;
  std::mt19937 random_{7};
};

TEST_F(LeftOut, NoStepGoesOverTheBudgetAndLearningEnds) {
  const Bytes budget = harness_.budget_at(kLongest, 0.15);
  int learning = 0;
  int revoked = 0;
  for (int i = 0; i < 200; ++i) {
    const HarnessStep step = this->step(shape(), budget, 7);
    EXPECT_FALSE(step.outcome.overrun) << i;
    if (i < 40) continue;
    learning += step.state == ControllerState::kLearning ? 1 : 0;
    revoked += step.outcome.revocations > 0 ? 1 : 0;
  }
  EXPECT_LE(learning, 4);
  EXPECT_LE(revoked, 4);
}

TEST_F(LeftOut, AStepThatLeavesNothingOutIsPredictedToTheByte) {
  const Bytes budget = harness_.budget_at(kLongest, 0.3);
  for (int i = 0; i < 60; ++i) step(shape(), budget, 7);
  // No peak is predicted while layers come and go: what all of them need is an upper bound.
  EXPECT_EQ(step(kLongest, budget, 3).decision.plan->predicted_peak_bytes, Bytes(0));
  for (int i = 0; i < 30; ++i) step(shape(), budget, 0);
  const HarnessStep whole = step(kLongest, budget, 0);
  EXPECT_EQ(whole.decision.plan->predicted_peak_bytes, whole.outcome.peak_bytes);
  EXPECT_EQ(whole.decision.plan->modes.size(), 2U * kLayers);
}

TEST_F(LeftOut, LayersThatStayAwayArePlannedForNoMore) {
  const Bytes budget = harness_.budget_at(kLongest, 0.3);
  for (int i = 0; i < 30; ++i) step(shape(), budget, 0);
  harness_.model.spec().encoder_layers = kLayers - 2;
  harness_.model.spec().left_out_layers = 2;
  for (int i = 0; i < 30; ++i) harness_.step(shape(), budget);
  const HarnessStep last = harness_.step(kLongest, budget);
  EXPECT_EQ(last.decision.plan->modes.size(), 2U * kLayers - 2);
  EXPECT_EQ(last.decision.plan->predicted_peak_bytes, last.outcome.peak_bytes);
}

TEST_F(LeftOut, TheModeOfALayerIsThatOfItsClass) {
  const Bytes budget = harness_.budget_at(kLongest, 0.3);
  for (int i = 0; i < 40; ++i) step(shape(), budget, 0);
  const HarnessStep whole = step(kLongest, budget, 0);
  ASSERT_EQ(whole.decision.plan->layer_classes.size(), 2U * kLayers);
  for (std::size_t i = 0; i < 2 * kLayers; ++i) {
    EXPECT_EQ(whole.decision.plan->layer_classes[i], i < kLayers ? 0 : 1);
  }
}

}  // namespace
}  // namespace pudica::testing
