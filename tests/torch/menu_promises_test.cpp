// What a menu promises before its modes ran is what they do.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

class MenuPromisesTest : public SessionTest {
 protected:
  // What layer 1 leaves live after its forward; the others are kept.
  std::int64_t left_by(Handle& handle, Mode mode, std::int64_t length) {
    policy_->plan = plan_of({Mode::keep(), mode, Mode::keep(), Mode::keep()});
    train_step(handle, length);
    for (const SegmentObservation& item : policy_->outcomes.back().segments) {
      if (item.key.kind == SegmentKind::kForward && item.layer == 1) return item.sample.net_bytes;
    }
    ADD_FAILURE() << "no forward of layer 1 was recorded";
    return 0;
  }
};

TEST_F(MenuPromisesTest, AModeHoldsLessThanKeepByWhatIsPromised) {
  policy_->menus = true;
  policy_->record = true;
  const auto handle = attach_with(1 << 30);
  const std::int64_t keep = left_by(*handle, Mode::keep(), 24);
  left_by(*handle, Mode::keep(), 16);
  ASSERT_FALSE(policy_->structures.empty());
  ASSERT_FALSE(policy_->structures.back().menus.empty());
  const StepStructure::Menu menu = policy_->structures.back().menus[0];
  ASSERT_GE(menu.promises.size(), 2U);
  ASSERT_EQ(menu.promises.size(), menu.steps.size());
  EXPECT_EQ(menu.shape, (ShapeKey{2, 24})) << "of the step in which it was found";
  double share = 0;
  for (std::size_t k = 0; k < menu.promises.size(); ++k) {
    const StepStructure::Menu::Promise& promise = menu.promises[k];
    const Mode mode = Mode::selective(static_cast<std::uint16_t>(k));
    EXPECT_EQ(keep - left_by(*handle, mode, 24), promise.freed_bytes) << menu.steps[k];
    EXPECT_GE(promise.work_share, share) << menu.steps[k];
    EXPECT_LE(promise.work_share, 1) << menu.steps[k];
    share = promise.work_share;
  }
  EXPECT_GT(share, 0);
  EXPECT_EQ(policy_->structures.back().menus[0], menu) << "told once";
}

// Attention that pads, a branch on the length: where layers run other operators than their menu is
// for.
class StrangersTest : public MenuPromisesTest {
 protected:
  StrangersTest() {
    policy_->menus = true;
    policy_->record = true;
    is_strange_ = [](std::int64_t length) { return length == 32; };
  }
};

TEST_F(StrangersTest, OneIsKeptAndItsSiblingsAreRecomputed) {
  const auto handle = attach_with(1 << 30);
  policy_->plan = plan_of(std::vector<Mode>(4, Mode::keep()));
  train_step(*handle, 24);
  const auto kept = train_step(*handle, 32);
  const Mode mode = Mode::selective(1);
  policy_->plan = plan_of(std::vector<Mode>(4, mode));
  policy_->plan->strange_mode = Mode::full();
  train_step(*handle, 24);
  EXPECT_EQ(modes_run(), std::vector<Mode>(4, mode));
  train_step(*handle, 32);
  EXPECT_TRUE(policy_->outcomes.back().searched) << "not all of the plan ran";
  EXPECT_TRUE(policy_->structures.back().menus[0].not_at.empty()) << "once may be chance";
  const auto gradients = train_step(*handle, 32);
  const std::vector<Mode> run{Mode::keep(), Mode::full(), Mode::full(), Mode::full()};
  EXPECT_EQ(modes_run(), run);
  const std::vector<ShapeKey> strange{ShapeKey{2, 32}};
  EXPECT_EQ(policy_->structures.back().menus[0].not_at, strange);
  ASSERT_EQ(gradients.size(), kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], kept[i])) << i;
}

// A menu is withdrawn where plans run into strangers from step to step, not where some shapes are.
TEST_F(StrangersTest, AMenuThatFitsSometimesStays) {
  const auto handle = attach_with(1 << 30);
  policy_->plan = plan_of(std::vector<Mode>(4, Mode::keep()));
  train_step(*handle, 24);
  const Mode mode = Mode::selective(1);
  policy_->plan = plan_of(std::vector<Mode>(4, mode));
  for (int step = 0; step < 20; ++step) {
    train_step(*handle, 32);
    train_step(*handle, 24);
    ASSERT_EQ(modes_run(), std::vector<Mode>(4, mode)) << step;
  }
  EXPECT_EQ(policy_->structures.back().menus[0].not_at.size(), 1U);
  for (int step = 0; step < 20; ++step) train_step(*handle, 32);
  EXPECT_EQ(policy_->structures.back().menus[0].id, StepStructure::Menu::kNone);
}

// One odd call between those that fit says nothing of their shape.
TEST_F(StrangersTest, OddCallsBetweenFittingOnesAreNotTold) {
  const auto handle = attach_with(1 << 30);
  policy_->plan = plan_of(std::vector<Mode>(4, Mode::keep()));
  train_step(*handle, 24);
  policy_->plan = plan_of(std::vector<Mode>(4, Mode::selective(1)));
  for (int step = 0; step < 6; ++step) {
    is_strange_ = [step](std::int64_t) { return step % 2 == 0; };
    train_step(*handle, 24);
  }
  EXPECT_TRUE(policy_->structures.back().menus[0].not_at.empty());
}

// The call that finds the menu is kept, and no stranger.
TEST_F(StrangersTest, TheCallThatFindsTheMenuIsNone) {
  const auto handle = attach_with(1 << 30);
  const Mode mode = Mode::selective(1);
  policy_->plan = plan_of(std::vector<Mode>(4, mode));
  policy_->plan->strange_mode = Mode::full();
  for (int step = 0; step < 2; ++step) train_step(*handle, 24);
  EXPECT_EQ(modes_run(), std::vector<Mode>(4, mode));
  EXPECT_TRUE(policy_->structures.back().menus[0].not_at.empty());
}

}  // namespace
}  // namespace pudica::testing
