#include <gtest/gtest.h>

#include "pudica/planner.h"

namespace pudica {
namespace {

// Two layers, tail 10. Keep both: max(0 + 120, 100 + 90, 180 + 10) = 190.
Chain two_layers() {
  Chain chain;
  chain.layers = {{{100, 120, 0}, {10, 130, 500}}, {{80, 90, 7}, {5, 100, 307}}};
  chain.tail_bytes = 10;
  return chain;
}

TEST(Evaluate, SumsTimesAndTakesTheLargestNeedOfAnyLayer) {
  const Chain chain = two_layers();
  const ChainPlan keep = evaluate(chain, std::vector<std::uint8_t>{0, 0});
  EXPECT_EQ(keep.peak_bytes, 190);
  EXPECT_EQ(keep.time_ns, 7);
  const ChainPlan first = evaluate(chain, std::vector<std::uint8_t>{1, 0});
  EXPECT_EQ(first.peak_bytes, 130);  // max(130, 10 + 90, 90 + 10)
  EXPECT_EQ(first.time_ns, 507);
  const ChainPlan second = evaluate(chain, std::vector<std::uint8_t>{0, 1});
  EXPECT_EQ(second.peak_bytes, 200);  // max(120, 100 + 100, 105 + 10)
  EXPECT_EQ(second.lower_bound_ns, 7);
}

TEST(Evaluate, OfNoLayersIsTheTail) {
  Chain chain;
  chain.tail_bytes = -3;
  EXPECT_EQ(evaluate(chain, {}).peak_bytes, -3);
  EXPECT_EQ(floor_plan(chain).peak_bytes, -3);
}

TEST(Evaluate, RefusesChoicesThatDoNotMatchTheChain) {
  const Chain chain = two_layers();
  EXPECT_THROW(evaluate(chain, std::vector<std::uint8_t>{0}), BugError);
  EXPECT_THROW(evaluate(chain, std::vector<std::uint8_t>{0, 2}), BugError);
}

TEST(FloorPlan, TakesTheFastestModesThatKeepTheLeastPeak) {
  // Only the third mode of layer 0 is below 150 with the rest: keeping needs 100 + 90.
  Chain chain = two_layers();
  chain.layers[0][1].peak_bytes = 150;
  chain.layers[0].push_back({20, 125, 900});
  const ChainPlan plan = floor_plan(chain);
  EXPECT_EQ(plan.choice, (std::vector<std::uint8_t>{2, 0}));
  EXPECT_EQ(plan.peak_bytes, 125);  // layer 1 needs no recompute to stay within
  EXPECT_EQ(plan.time_ns, 907);
}

TEST(FloorPlan, RefusesALayerWithoutModes) {
  Chain chain = two_layers();
  chain.layers[1].clear();
  EXPECT_THROW(floor_plan(chain), BugError);
}

}  // namespace
}  // namespace pudica
