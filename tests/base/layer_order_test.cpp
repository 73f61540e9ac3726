#include "base/layer_order.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::testing {
namespace {

using Order = std::vector<std::uint16_t>;

TEST(LayerOrder, LayersKnowWhereInTheirClassTheyStand) {
  const auto variants = [](const std::vector<std::uint16_t>& order) {
    std::vector<int> out;
    for (const StepStructure::Layer& layer : layers_of(order)) out.push_back(layer.variant);
    return out;
  };
  const int first = SegmentKey::kFirstOfClass;
  const int last = SegmentKey::kLastOfClass;
  EXPECT_EQ(variants({0, 0, 0}), (std::vector{0, 0, last})) << "none is before the first";
  EXPECT_EQ(variants({0, 0, 1, 1, 1}), (std::vector{0, last, first, 0, last}));
  EXPECT_EQ(variants({0, 1, 0, 1}), (std::vector{0, first, last, last}));
  EXPECT_EQ(variants({0, 1}), (std::vector{last, first | last}));
  EXPECT_TRUE(variants({}).empty());
}

TEST(LayerOrder, AStepThatLeavesNothingOutTakesThePlacesInOrder) {
  EXPECT_EQ(places_in(Order{0, 0, 1}, Order{0, 0, 1}), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(LayerOrder, ACallTakesThePlaceOfTheNextLayerOfItsClass) {
  EXPECT_EQ(places_in(Order{0, 0, 0, 1, 1}, Order{0, 1, 1}), (std::vector<std::size_t>{0, 3, 4}));
  EXPECT_EQ(places_in(Order{2, 0, 0}, Order{0, 0}), (std::vector<std::size_t>{1, 2}));
}

TEST(LayerOrder, ACallOfAnUnknownClassTakesTheNextPlace) {
  EXPECT_EQ(places_in(Order{0, 0}, Order{5, 0, 5}), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(places_in(Order{}, Order{5, 0}), (std::vector<std::size_t>{0, 1}));
}

TEST(LayerOrder, APartIsTheWholeWithLayersLeftOut) {
  EXPECT_TRUE(is_part_of(Order{0, 1}, Order{0, 0, 1}));
  EXPECT_TRUE(is_part_of(Order{}, Order{0}));
  EXPECT_TRUE(is_part_of(Order{0, 1}, Order{0, 1}));
  EXPECT_FALSE(is_part_of(Order{1, 0}, Order{0, 0, 1}));
  EXPECT_FALSE(is_part_of(Order{0, 0}, Order{0}));
}

// Against trying every part of the longest candidates.
std::size_t longest_common(const Order& left, const Order& right) {
  std::size_t best = 0;
  for (std::uint32_t mask = 0; mask < (1U << left.size()); ++mask) {
    Order part;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if ((mask >> i & 1U) != 0) part.push_back(left[i]);
    }
    if (part.size() > best && is_part_of(part, right)) best = part.size();
  }
  return best;
}

TEST(LayerOrder, TheMergedOrderIsTheShortestThatHoldsBoth) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    Order left(random() % 8);
    Order right(random() % 8);
    for (auto& layer_class : left) layer_class = static_cast<std::uint16_t>(random() % 3);
    for (auto& layer_class : right) layer_class = static_cast<std::uint16_t>(random() % 3);
    const Order merged = merged_order(left, right);
    EXPECT_TRUE(is_part_of(left, merged));
    EXPECT_TRUE(is_part_of(right, merged));
    EXPECT_EQ(merged.size(), left.size() + right.size() - longest_common(left, right));
  }
}

TEST(LayerOrder, PlacesRiseAndAreOfTheCallsClassForEveryPart) {
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    Order planned(1 + random() % 12);
    for (auto& layer_class : planned) layer_class = static_cast<std::uint16_t>(random() % 3);
    Order step;
    for (const std::uint16_t layer_class : planned) {
      if (random() % 3 != 0) step.push_back(layer_class);
    }
    const auto places = places_in(planned, step);
    for (std::size_t i = 0; i < places.size(); ++i) {
      ASSERT_LT(places[i], planned.size());
      EXPECT_EQ(planned[places[i]], step[i]);
      if (i > 0) {
        EXPECT_GT(places[i], places[i - 1]);
      }
    }
  }
}

}  // namespace
}  // namespace pudica::testing
