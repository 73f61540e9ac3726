// Steps whose layers are passed by.
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

class RestTest : public SessionTest {
 protected:
  RestTest() {
    handle_ = attach_with(0);
    Plan plan = plan_of(std::vector<Mode>(4, Mode::keep()));
    plan.revocable = false;
    policy_->plan = plan;
    step();
    plan.predicted_peak_bytes = report_.peak_bytes + Bytes(4096);
    policy_->plan = plan;
  }

  // As hooks on modules would run it; whether it rested.
  bool step(bool same_model = true, std::int64_t length = 16) {
    model_->clear_gradients();
    at::manual_seed(3);
    handle_->begin_step(ShapeKey{2, length});
    may_rest_ = handle_->may_rest();
    const bool rests = handle_->rest(0, same_model);
    entered_ = 0;
    at::Tensor x = at::randn({2, length, 32}).requires_grad_(true) * 1.0;
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      if (rests && throws_) break;
      const auto layer = model_->layers[i];
      const auto run = [layer](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{layer->forward(in[0])};
      };
      if (rests && i == wakes_at_) handle_->wake(static_cast<std::int64_t>(i));
      if (i == grows_at_) hoard_ = at::empty({1 << 20});
      const bool passes = rests && i < wakes_at_ && handle_->passes(static_cast<std::int64_t>(i));
      const bool entered = !passes && handle_->enter_layer(run, {x}, {});
      entered_ += entered ? 1 : 0;
      x = layer->forward(x);
      if (entered) handle_->leave_layer({x});
    }
    if (rests && !throws_) handle_->rested(std::ssize(model_->layers), {x});
    if (hoards_) hoard_ = at::empty({1 << 20});
    torch::autograd::backward({x.pow(2).mean()});
    hoard_ = at::Tensor();
    x = at::Tensor();
    report_ = handle_->end_step();
    return rests;
  }

  // Under a budget, by a plan that has to hold, which it has done often enough to rest.
  void train_until_held() {
    handle_ = attach_with(std::int64_t{1} << 40);
    policy_->plan->revocable_until_held = true;
    policy_->plan->layer_classes = std::vector<std::uint16_t>(4, 0);
    for (int i = 0; i < 4; ++i) step();
  }

  // The next step, which may be one that is looked at all the same.
  bool rests_soon() { return step() || step(); }

  std::unique_ptr<Handle> handle_;
  bool may_rest_ = false;
  bool throws_ = false;
  bool hoards_ = false;
  std::size_t wakes_at_ = SIZE_MAX;
  std::size_t grows_at_ = SIZE_MAX;
  int entered_ = 0;
  at::Tensor hoard_;
};

TEST_F(RestTest, AStepRestsOnceItsLikeWasLookedAtTwiceAndReportsItsLayers) {
  EXPECT_FALSE(step());
  EXPECT_FALSE(report_.rested);
  EXPECT_FALSE(step());
  const Bytes peak = report_.peak_bytes;
  ASSERT_TRUE(rests_soon());
  EXPECT_TRUE(report_.rested);
  EXPECT_EQ(report_.layer_calls, 4);
  EXPECT_EQ(report_.peak_bytes, peak);
  EXPECT_FALSE(policy_->outcomes.back().failed);
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(RestTest, EveryEighthStepIsLookedAt) {
  step();
  step();
  int looks = 0;
  for (int i = 0; i < 16; ++i) looks += step() ? 0 : 1;
  EXPECT_EQ(looks, 2);
}

TEST_F(RestTest, OnlyStepsThatKeepAllWithoutHooksMayRest) {
  const Plan whole = *policy_->plan;
  EXPECT_FALSE(step());
  EXPECT_TRUE(may_rest_);
  const auto with = [&](auto change) {
    Plan plan = whole;
    change(plan);
    policy_->plan = plan;
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(step());
    return may_rest_;
  };
  EXPECT_FALSE(with([](Plan& plan) { plan.modes[2] = Mode::full(); }));
  EXPECT_FALSE(with([](Plan& plan) { plan.revocable = true; }));
  EXPECT_FALSE(with([](Plan& plan) { plan.predicted_peak_bytes = Bytes(0); }));
  EXPECT_FALSE(with([](Plan& plan) { plan.peak_is_bound = true; }));
  EXPECT_FALSE(with([](Plan& plan) { plan.feasible = false; }));
  EXPECT_FALSE(with([](Plan& plan) { plan.modes.clear(); }));
  policy_->plan = whole;
  policy_->record = true;
  step();
  EXPECT_FALSE(may_rest_);
  policy_->record = false;
  policy_->may_change = true;
  step();
  EXPECT_FALSE(may_rest_);
}

TEST_F(RestTest, AnotherModelOrShapeIsLookedAt) {
  step();
  step();
  ASSERT_TRUE(rests_soon());
  EXPECT_FALSE(step(/*same_model=*/true, 8));
  EXPECT_FALSE(step(/*same_model=*/false));
  EXPECT_FALSE(step());
}

TEST_F(RestTest, MoreThanPredictedWhileItRestsIsSeenAndEndsIt) {
  step();
  step();
  hoards_ = true;
  ASSERT_TRUE(rests_soon());
  EXPECT_GT(report_.peak_bytes, policy_->plan->predicted_peak_bytes);
  hoards_ = false;
  EXPECT_FALSE(step());
}

TEST_F(RestTest, AForwardThatThrewWhileItRestedTeachesNothing) {
  step();
  step();
  throws_ = true;
  ASSERT_TRUE(rests_soon());
  EXPECT_TRUE(policy_->outcomes.back().failed);
  throws_ = false;
  EXPECT_TRUE(rests_soon());
}

TEST_F(RestTest, AStepThatIsWokenHasTheRestOfItsLayersInDoubt) {
  train_until_held();
  wakes_at_ = 2;
  const auto layers = policy_->structures.back().layers;
  ASSERT_TRUE(rests_soon());
  EXPECT_FALSE(report_.rested);
  EXPECT_EQ(report_.layer_calls, 4);
  EXPECT_EQ(policy_->structures.back().layers, layers);
  EXPECT_FALSE(policy_->outcomes.back().failed);
  EXPECT_EQ(entered_, 2);
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(RestTest, MoreInUseInFrontOfALayerWakesIt) {
  train_until_held();
  grows_at_ = 2;
  ASSERT_TRUE(rests_soon());
  EXPECT_EQ(entered_, 2);
  EXPECT_FALSE(report_.rested);
  EXPECT_EQ(report_.layer_calls, 4);
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(RestTest, LayersThatComeAllTheSameJustRun) {
  step();
  step();
  handle_->begin_step(ShapeKey{2, 16});
  if (!handle_->rest(0, true)) {
    handle_->begin_step(ShapeKey{2, 16});
    ASSERT_TRUE(handle_->rest(0, true));
  }
  const auto run = [](const std::vector<at::Tensor>& in) { return in; };
  EXPECT_FALSE(handle_->enter_layer(run, {at::ones({2})}, {}));
}

}  // namespace
}  // namespace pudica::testing
