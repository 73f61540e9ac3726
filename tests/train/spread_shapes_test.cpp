#include "train/spread_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::train {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::map<ShapeKey, std::int64_t> lengths_to(std::int64_t longest) {
  std::map<ShapeKey, std::int64_t> shapes;
  for (std::int64_t length = 1; length <= longest; ++length) {
    shapes.emplace(ShapeKey{4, length}, length);
  }
  return shapes;
}

TEST(SpreadShapes, TakesAllThatAreFew) {
  EXPECT_EQ(spread_shapes(lengths_to(5), 5), lengths_to(5));
  EXPECT_TRUE(spread_shapes({}, 2).empty());
}

TEST(SpreadShapes, TakesBothEndsAndEvenlyBetween) {
  EXPECT_THAT(
      spread_shapes(lengths_to(9), 3),
      ElementsAre(Pair(ShapeKey{4, 1}, 1), Pair(ShapeKey{4, 5}, 5), Pair(ShapeKey{4, 9}, 9)));
  EXPECT_EQ(spread_shapes(lengths_to(1000), 64).size(), 64U);
}

TEST(SpreadShapes, GoesByVolumeNotByTheFirstDimension) {
  const std::map<ShapeKey, std::int64_t> shapes{
      {ShapeKey{4, 2, 90}, 0}, {ShapeKey{4, 5, 5}, 1}, {ShapeKey{4, 9, 1}, 2}};
  EXPECT_THAT(spread_shapes(shapes, 2),
              ElementsAre(Pair(ShapeKey{4, 2, 90}, 0), Pair(ShapeKey{4, 9, 1}, 2)));
}

}  // namespace
}  // namespace pudica::train
