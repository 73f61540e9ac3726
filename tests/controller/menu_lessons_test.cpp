#include "controller/menu_lessons.h"

#include <gtest/gtest.h>

#include "pudica/peak_model.h"

namespace pudica::testing {
namespace {

// Layers of class 0 that hold 100 bytes kept and 10 in `full`, whose recompute comes on top.
StepModel model_of(std::size_t layers, std::size_t unknown) {
  StepModel model;
  LayerCosts layer;
  layer.modes = {{Mode::keep(), 100, 110, 0, 30, 0}, {Mode::full(), 10, 110, 0, 130, 1}};
  model.upper.layers.assign(layers, layer);
  for (std::size_t k = 0; k < unknown; ++k) {
    model.unknown.push_back({0, Mode::selective(static_cast<std::uint16_t>(k)), {}});
  }
  return model;
}

constexpr std::int64_t kAmple = 1 << 20;

TEST(MenuLessons, EachModeInALayerOfItsOwnKeptOnesFirst) {
  const std::vector<std::uint8_t> choice{1, 0, 0, 1};
  const MenuLessons taught = lessons_within(model_of(4, 3), choice, {}, kAmple);
  ASSERT_EQ(taught.lessons.size(), 3U);
  EXPECT_EQ(taught.lessons[0].layer, 1U);
  EXPECT_EQ(taught.lessons[1].layer, 2U);
  EXPECT_EQ(taught.lessons[2].layer, 3U);  // the last of the others
  EXPECT_EQ(taught.lessons[2].mode, Mode::selective(2));
}

TEST(MenuLessons, StayWithinTheRoom) {
  const StepModel model = model_of(3, 2);
  const std::vector<std::uint8_t> choice{1, 1, 0};
  const std::int64_t planned = step_peak_bytes(model.upper, choice);
  for (std::int64_t room = planned - 20; room < planned + 200; ++room) {
    const MenuLessons taught = lessons_within(model, choice, {}, room);
    if (!taught.lessons.empty()) {
      EXPECT_LE(taught.peak_bytes, room);
    }
    for (const MenuLesson& lesson : taught.lessons) {
      EXPECT_EQ(lesson.forward_peak_bytes, 110);
      // The recompute of `full`, above what `keep` holds, and a quarter of that.
      EXPECT_EQ(lesson.backward_peak_bytes, 10 + 130 - 100 + 100 / 4);
    }
  }
  EXPECT_TRUE(lessons_within(model, choice, {}, planned - 20).lessons.empty());
  EXPECT_EQ(lessons_within(model, choice, {}, kAmple).lessons.size(), 2U);
}

// What it needed at another shape tells more than what `keep` and `full` need here.
TEST(MenuLessons, AModeSeenElsewhereNeedsLessRoom) {
  StepModel model = model_of(3, 1);
  const std::vector<std::uint8_t> choice{1, 1, 1};
  const std::int64_t planned = step_peak_bytes(model.upper, choice);
  ASSERT_TRUE(lessons_within(model, choice, {}, planned).lessons.empty());
  model.unknown[0].seen = LayerModeCosts{Mode::selective(0), 20, 60, 0, 70, 0};
  const MenuLessons taught = lessons_within(model, choice, {}, planned);
  ASSERT_EQ(taught.lessons.size(), 1U);
  EXPECT_EQ(taught.lessons[0].forward_peak_bytes, 60);
  EXPECT_EQ(taught.lessons[0].backward_peak_bytes, 70);
  EXPECT_LE(taught.peak_bytes, planned);
  // Less is left, but with the backward on top it is more than the other bound says.
  model.unknown[0].seen = LayerModeCosts{Mode::selective(0), 20, 1000, 0, 146, 0};
  const MenuLessons no_more = lessons_within(model, choice, {}, kAmple);
  EXPECT_EQ(no_more.lessons[0].forward_peak_bytes, 110);
  EXPECT_EQ(no_more.lessons[0].backward_peak_bytes, 100 + 65 - 20);
  EXPECT_EQ(no_more.peak_bytes, 10 + 10 + 100 + 65);
}

// What a menu promises is held less until the backward, whose highest point it does not lower.
TEST(MenuLessons, AModeHoldsWhatKeepHoldsLessWhatIsPromised) {
  StepModel model = model_of(2, 1);
  model.unknown[0].freed_bytes = 60;
  model.unknown[0].work_share = 0.25;
  const StepCosts costs = with_unknown_modes(model);
  ASSERT_EQ(costs.layers[0].modes.size(), 3U);
  const LayerModeCosts& bound = costs.layers[0].modes[2];
  EXPECT_EQ(bound.mode, Mode::selective(0));
  EXPECT_EQ(bound.forward_net_bytes, 100 - 60);
  EXPECT_EQ(bound.forward_peak_bytes, 110);
  EXPECT_EQ(bound.forward_net_bytes + bound.backward_peak_bytes, 100 + 65);
  EXPECT_EQ(bound.extra_seconds, 0.25);
  // Never less than `full` holds, and of two reckonings the lower.
  model.unknown[0].freed_bytes = 1000;
  EXPECT_EQ(with_unknown_modes(model).layers[0].modes[2].forward_net_bytes, 10);
  model.unknown[0].seen = LayerModeCosts{Mode::selective(0), 30, 60, 0, 70, 0};
  const StepCosts both = with_unknown_modes(model);
  EXPECT_EQ(both.layers[0].modes[2].forward_net_bytes, 10);
  EXPECT_EQ(both.layers[0].modes[2].forward_peak_bytes, 60);
  EXPECT_EQ(both.layers[0].modes[2].backward_peak_bytes, 30 + 70 - 10);
}

// As promised its layer needs no more than `keep` does.
TEST(MenuLessons, WhatIsLikelyIsLessThanWhatIsCertain) {
  StepModel model = model_of(2, 1);
  model.unknown[0].freed_bytes = 40;
  const auto modes = [&model](Reckoning reckoning) {
    return with_unknown_modes(model, reckoning).layers[0].modes[2];
  };
  EXPECT_EQ(modes(Reckoning::kAtMost).forward_net_bytes, 60);
  EXPECT_EQ(modes(Reckoning::kAsPromised).forward_net_bytes, 60);
  EXPECT_EQ(modes(Reckoning::kAsPromised).backward_peak_bytes, 30 + 40);
}

// What a plan on promises measures in a layer is measured there.
TEST(MenuLessons, LeaveTheLayersOfOthersAlone) {
  const std::vector<std::uint8_t> choice{1, 1, 1};
  const std::vector<MenuLesson> others{{2, Mode::selective(7), 0, 0}};
  const MenuLessons taught = lessons_within(model_of(3, 3), choice, {}, kAmple, {.beside = others});
  ASSERT_EQ(taught.lessons.size(), 2U);
  EXPECT_EQ(taught.lessons[0].layer, 1U);
  EXPECT_EQ(taught.lessons[1].layer, 0U);
}

// What a layer keeps until the head (casts of weights) a mode may keep as well: it is not reckoned
// to go any earlier than `keep` lets it.
TEST(MenuLessons, AModeReleasesNothingForCertain) {
  StepModel model = model_of(2, 1);
  for (LayerCosts& layer : model.upper.layers) layer.modes[1].released_bytes = 7;
  EXPECT_EQ(with_unknown_modes(model).layers[0].modes[2].released_bytes, 0);
}

// A mode may be known where a layer stands first, and not where it stands last.
TEST(MenuLessons, AModeThatIsKnownHereIsNotPutBesideItself) {
  StepModel model = model_of(2, 1);
  model.upper.layers[0].modes.push_back({Mode::selective(0), 50, 110, 0, 90, 0.1});
  const StepCosts costs = with_unknown_modes(model);
  EXPECT_EQ(costs.layers[0].modes.size(), 3U);
  EXPECT_EQ(costs.layers[1].modes.size(), 3U);
}

TEST(MenuLessons, TakeNoMoreTimeThanTheyMay) {
  StepModel model = model_of(4, 3);
  for (std::size_t k = 0; k < 3; ++k) model.unknown[k].work_share = 0.25 * double(k + 1);
  const std::vector<std::uint8_t> keeps{0, 0, 0, 0};
  const MenuLessons none = lessons_within(model, keeps, {}, kAmple, {0.2});
  EXPECT_TRUE(none.lessons.empty());
  EXPECT_EQ(none.awaited_seconds, 0.25);
  EXPECT_GT(lessons_within(model, keeps, {}, 0, {0.2}).awaited_seconds, 1e9) << "nor is there room";
  const MenuLessons some = lessons_within(model, keeps, {}, kAmple, {0.8});
  ASSERT_EQ(some.lessons.size(), 2U);
  EXPECT_EQ(some.extra_seconds, 0.25 + 0.5);
  // A layer that would be recomputed loses nothing by it.
  const std::vector<std::uint8_t> recomputes{1, 1, 1, 1};
  const MenuLessons free = lessons_within(model, recomputes, {}, kAmple, {0});
  EXPECT_EQ(free.lessons.size(), 3U);
  EXPECT_EQ(free.extra_seconds, 0);
}

TEST(MenuLessons, OnlyLayersOfTheClassLearn) {
  StepModel model = model_of(3, 1);
  model.upper.layers[0].layer_class = 1;
  model.upper.layers[1].layer_class = 1;
  const std::vector<std::uint8_t> choice{0, 0, 0};
  const MenuLessons taught = lessons_within(model, choice, {}, kAmple);
  ASSERT_EQ(taught.lessons.size(), 1U);
  EXPECT_EQ(taught.lessons[0].layer, 2U);
}

// Without both there is no bound.
TEST(MenuLessons, NoneWithoutKeepAndFull) {
  StepModel model = model_of(2, 1);
  for (LayerCosts& layer : model.upper.layers) layer.modes.pop_back();
  const std::vector<std::uint8_t> choice{0, 0};
  EXPECT_TRUE(lessons_within(model, choice, {}, kAmple).lessons.empty());
}

// It runs nothing again: `keep` alone bounds it.
TEST(MenuLessons, OffloadNeedsNoFull) {
  StepModel model = model_of(2, 0);
  model.unknown.push_back({0, Mode::offload(), {}});
  for (LayerCosts& layer : model.upper.layers) layer.modes.pop_back();
  const std::vector<std::uint8_t> choice{0, 0};
  const MenuLessons taught = lessons_within(model, choice, {}, kAmple);
  ASSERT_EQ(taught.lessons.size(), 1U);
  EXPECT_EQ(taught.lessons[0].mode, Mode::offload());
  EXPECT_EQ(taught.lessons[0].forward_peak_bytes, 110);
  EXPECT_EQ(taught.lessons[0].backward_peak_bytes, 30 + 100);
}

// Layers whose forward is one have no mode of their own, and the rest of the step peaks as they do.
TEST(MenuLessons, LayersOfASegmentRunAsPlanned) {
  const StepModel model = model_of(4, 4);
  const std::vector<std::uint8_t> choice{1, 1, 1, 0};
  const std::vector<std::uint8_t> joined{0, 1, 1, 0};
  const MenuLessons taught = lessons_within(model, choice, joined, kAmple);
  ASSERT_EQ(taught.lessons.size(), 1U);
  EXPECT_EQ(taught.lessons[0].layer, 3U);
  StepCosts costs = model.upper;
  costs.layers[3].modes.push_back({taught.lessons[0].mode, 100, 110, 0, 140, 0});
  const std::vector<std::uint8_t> with_lesson{1, 1, 1, 2};
  EXPECT_EQ(taught.peak_bytes, step_peak_bytes(costs, with_lesson, joined));
  EXPECT_TRUE(lessons_within(model, choice, joined, taught.peak_bytes - 1).lessons.empty());
}

}  // namespace
}  // namespace pudica::testing
