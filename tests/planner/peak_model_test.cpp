#include "pudica/peak_model.h"

#include <limits>

#include <gtest/gtest.h>

namespace pudica {
namespace {

// Two layers with gaps, residues and a negative head net, small enough to follow by hand.
StepCosts by_hand() {
  StepCosts costs;
  costs.layers.resize(2);
  costs.layers[0].gap_net_bytes = 10;
  costs.layers[0].gap_peak_bytes = 15;
  costs.layers[0].residue_bytes = 4;
  costs.layers[0].modes = {{Mode::keep(), 100, 120, 0, 30, 0.0},
                           {Mode::full(), 20, 110, 0, 130, 1.5}};
  costs.layers[1].gap_net_bytes = 3;
  costs.layers[1].gap_peak_bytes = 8;
  costs.layers[1].residue_bytes = 6;
  costs.layers[1].modes = {{Mode::keep(), 90, 95, 0, 40, 0.0}};
  costs.head_net_bytes = -7;
  costs.head_peak_bytes = 12;
  costs.epilogue_net_bytes = -16;
  costs.epilogue_peak_bytes = 5;
  costs.optimizer_peak_bytes = 50;
  return costs;
}

TEST(StepPeakBytes, FollowsTheFormulaSegmentBySegment) {
  // keep, keep: live 10, 110, 113, 203; head 215; live 196; backward of 1: 236, the peak.
  EXPECT_EQ(step_peak_bytes(by_hand(), std::vector<std::uint8_t>{0, 0}), 236);
  // full, keep: live 10, 30, 33, 123; head 135; live 116; backward 156; live 32; backward 162.
  EXPECT_EQ(step_peak_bytes(by_hand(), std::vector<std::uint8_t>{1, 0}), 162);
}

TEST(StepPeakBytes, BackwardsBehindAHolderNeedMore) {
  StepCosts costs = by_hand();
  costs.layers[1].modes[0].behind_holder_bytes = 9;
  costs.head_behind_holder_bytes = 200;
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{0, 0}), 236);
  costs.layers[0].modes[0].holds_output = true;
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{0, 0}), 245);
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{1, 0}), 162)
      << "run again it does not";
  costs.layers[1].modes[0].holds_output = true;
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{1, 0}), 335) << "the head";
}

// Who plans does not know what the layer before will do.
TEST(ToChain, IsBoundForBothKindsOfNeighbours) {
  StepCosts costs = by_hand();
  costs.layers[1].modes[0].behind_holder_bytes = 9;
  const std::int64_t without = to_chain(costs).chain.layers[1][0].peak_bytes;
  costs.layers[0].modes[0].holds_output = true;
  EXPECT_EQ(to_chain(costs).chain.layers[1][0].peak_bytes, without + 9);
}

TEST(StepPeakBytes, CountsTheOptimizerAboveWhatTheStepLeaves) {
  StepCosts costs = by_hand();
  costs.optimizer_peak_bytes = 1000;
  // What is left: gaps 13, residues 10, head -7, epilogue -16: nothing.
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{0, 0}), 1000);
}

TEST(StepPeakBytes, FreesReleasedBytesBeforeTheFirstBackward) {
  StepCosts costs = by_hand();
  costs.layers[1].modes[0].released_bytes = 30;
  // Backward of layer 1 starts at 166 and needs 206, the head 185; its forward needed 208.
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{0, 0}), 208);
  costs.until_release_peak_bytes = 12;
  EXPECT_EQ(step_peak_bytes(costs, std::vector<std::uint8_t>{0, 0}), 215) << "they go behind it";
}

TEST(StepPeakBytes, CountsWhatReturnsUntilThen) {
  StepCosts costs = by_hand();
  costs.return_peak_bytes = 9;
  const std::vector<std::uint8_t> keep{0, 0};
  const StepPeaks peaks = step_peaks(costs, keep);
  EXPECT_EQ(peaks.until_return_bytes, 212) << "203 and 9, in the head";
  EXPECT_EQ(peaks.bytes, 236);
  costs.returning_bytes = 24;
  EXPECT_EQ(step_peak_bytes(costs, keep), 236);
  costs.returning_bytes = 25;
  EXPECT_EQ(step_peak_bytes(costs, keep), 237);
}

TEST(StepPeakBytes, OfAnEmptyStepIsNotBelowItsBase) {
  StepCosts costs;
  costs.head_net_bytes = -100;
  EXPECT_EQ(step_peak_bytes(costs, {}), 0);
}

TEST(StepPeakBytes, RefusesAChoiceThatDoesNotMatch) {
  EXPECT_THROW(step_peak_bytes(by_hand(), std::vector<std::uint8_t>{0}), BugError);
  EXPECT_THROW(step_peak_bytes(by_hand(), std::vector<std::uint8_t>{0, 1}), BugError);
  EXPECT_THROW(step_extra_seconds(by_hand(), std::vector<std::uint8_t>{2, 0}), BugError);
}

TEST(StepExtraSeconds, SumsTheChosenModes) {
  EXPECT_DOUBLE_EQ(step_extra_seconds(by_hand(), std::vector<std::uint8_t>{1, 0}), 1.5);
}

TEST(ToChain, PutsEveryTermWhereItBelongs) {
  const ChainProblem problem = to_chain(by_hand());
  EXPECT_EQ(problem.offset_bytes, 10);
  // Left at the end 16: epilogue 16 + 5, optimizer 0 + 50.
  EXPECT_EQ(problem.constant_bytes, 50);
  EXPECT_EQ(problem.chain.tail_bytes, 12);
  const auto& layers = problem.chain.layers;
  EXPECT_EQ(layers[0][0].kept_bytes, 100);
  // Backward of layer 0: kept 100, head -7, layer 1's gap 3 and residue 6, transient 30.
  EXPECT_EQ(layers[0][0].peak_bytes, 132);
  EXPECT_EQ(layers[0][1].peak_bytes, 20 - 7 + 9 + 130);
  EXPECT_EQ(layers[0][1].time_ns, 1'500'000'000);
  EXPECT_EQ(layers[1][0].kept_bytes, 93);
  EXPECT_EQ(layers[1][0].peak_bytes, 126);  // backward: 93 - 7 + 40
}

TEST(ToChain, ShiftsLearnedTimesThatFellBelowTheFastestMode) {
  StepCosts costs = by_hand();
  costs.layers[0].modes[1].extra_seconds = -1e-3;
  const auto layer = to_chain(costs).chain.layers[0];
  EXPECT_EQ(layer[0].time_ns, 1'000'000);
  EXPECT_EQ(layer[1].time_ns, 0);
}

TEST(ToChain, TakesTimesThatAreNoNumberAsTheSlowest) {
  StepCosts costs = by_hand();
  costs.layers[0].modes[1].extra_seconds = std::numeric_limits<double>::quiet_NaN();
  const auto layer = to_chain(costs).chain.layers[0];
  EXPECT_EQ(layer[0].time_ns, 0);
  EXPECT_GT(layer[1].time_ns, 1'000'000'000'000);
  EXPECT_TRUE(make_planner({})->solve(to_chain(costs).chain, 1 << 20, {}).has_value());
}

}  // namespace
}  // namespace pudica
