#include "planner/scaling.h"

#include <limits>

#include <gtest/gtest.h>

namespace pudica::planner {
namespace {

Candidates collected(const Chain& chain) {
  Candidates candidates;
  EXPECT_TRUE(candidates.collect(chain).has_value());
  return candidates;
}

TEST(ScaledBytes, AreBytesWhileTheSumsAreSmall) {
  Chain chain;
  chain.layers = {{{101, -33, 0}}, {{7, 9, 0}}};
  chain.tail_bytes = 3;
  ScaledBytes scaled;
  scaled.scale(collected(chain));
  EXPECT_EQ(scaled.kept(0), 101);
  EXPECT_EQ(scaled.peak(0), -33);
  EXPECT_EQ(scaled.tail(), 3);
  EXPECT_EQ(scaled.safe_units(77), 77);
  EXPECT_EQ(scaled.optimistic_units(77), 77);
  EXPECT_EQ(scaled.bytes(5), 5);
}

TEST(ScaledBytes, RoundUpWhatIsNeededAndDownWhatIsThere) {
  Chain chain;
  chain.layers = {{{(std::int64_t{1} << 34) + 1, -65, 0}}};
  ScaledBytes scaled;
  scaled.scale(collected(chain));
  const std::int64_t unit = scaled.bytes(1);
  ASSERT_EQ(unit, 64);
  EXPECT_EQ(scaled.kept(0), (1 << 28) + 1);
  EXPECT_EQ(scaled.peak(0), -1);
  EXPECT_EQ(scaled.safe_units(127), 1);
  EXPECT_EQ(scaled.safe_units(-1), -1);
  // s rounds up by 63 and W by 1 (-65 to -64): what fits in 127 bytes fits in so many units.
  EXPECT_EQ(scaled.optimistic_units(127), (127 + 63 + 1) / 64);
}

TEST(ScaledBytes, KeepEverySumBelowTheLimitForAnySize) {
  for (int power = 10; power < 62; ++power) {
    Chain chain;
    const std::int64_t size = (std::int64_t{1} << power) - 1;
    for (int i = 0; i < 9; ++i) chain.layers.push_back({{size, size, 0}, {-size, 1, 1}});
    chain.tail_bytes = size;
    ScaledBytes scaled;
    scaled.scale(collected(chain));
    std::int64_t sum = scaled.tail();
    for (int i = 0; i < 9; ++i) sum += scaled.kept(2 * static_cast<std::size_t>(i));
    EXPECT_LT(sum, kUnitLimit) << power;
    EXPECT_GT(sum, power < 26 ? 0 : kUnitLimit / 3) << power;  // no coarser than need be
  }
}

TEST(ScaledBytes, TakeAnyBudget) {
  Chain chain;
  chain.layers = {{{10, 10, 0}}};
  ScaledBytes scaled;
  scaled.scale(collected(chain));
  EXPECT_EQ(scaled.safe_units(std::numeric_limits<std::int64_t>::max()), kUnitLimit);
  EXPECT_EQ(scaled.optimistic_units(std::numeric_limits<std::int64_t>::max()), kUnitLimit);
  EXPECT_EQ(scaled.safe_units(std::numeric_limits<std::int64_t>::min()), -kUnitLimit);
}

}  // namespace
}  // namespace pudica::planner
