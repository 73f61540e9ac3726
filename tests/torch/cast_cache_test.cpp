// Forwards under one autocast, of which the first casts the weights.
#include "torch/cast_cache.h"

#include <ATen/autocast_mode.h>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

const c10::Device kCpu(c10::DeviceType::CPU);

TEST(CastCache, HoldsUntilAutocastIsLeft) {
  hooks::CastCache casts;
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu)) << "autocast is off";
  {
    const Autocast on(true);
    EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
    EXPECT_FALSE(casts.are_new());
    EXPECT_TRUE(casts.hold_since_last_forward(kCpu));
    EXPECT_TRUE(casts.are_new());
    {
      const Autocast nested(true);
      EXPECT_TRUE(casts.hold_since_last_forward(kCpu));
    }
    EXPECT_TRUE(casts.hold_since_last_forward(kCpu)) << "what is inside is left, the outermost not";
    EXPECT_FALSE(casts.are_new());
    at::autocast::clear_cache();
    EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  }
  const Autocast again(true);
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
}

TEST(CastCache, NothingIsHeldWhereAutocastDoesNotCache) {
  hooks::CastCache casts;
  const Autocast on(true);
  at::autocast::set_autocast_cache_enabled(false);
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  at::autocast::set_autocast_cache_enabled(true);
}

TEST(CastCache, ThereAreNoneToTheTypeThatWeightsHave) {
  hooks::CastCache casts;
  const Autocast on(true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kFloat);
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_FALSE(casts.hold_since_last_forward(kCpu));
  EXPECT_TRUE(casts.hold_since_last_forward(kCpu));
}

TEST(CastCache, DrawsNoRandomNumber) {
  hooks::CastCache casts;
  const Autocast on(true);
  at::manual_seed(1);
  const at::Tensor drawn = at::rand({4});
  at::manual_seed(1);
  (void)casts.hold_since_last_forward(kCpu);
  EXPECT_TRUE(at::equal(at::rand({4}), drawn));
}

class CastSegments : public SessionTest {
 protected:
  // Two forwards and their backward, under one autocast or each under its own.
  void pair_step(Handle& handle, bool one_autocast) {
    model_->clear_gradients();
    at::manual_seed(3);
    const Autocast around(one_autocast);
    const auto half = [&] {
      const Autocast inside(true);
      return forward(handle).mean(1);
    };
    at::Tensor first = half();
    at::Tensor second = half();
    torch::autograd::backward({first.mul(second).sum()});
    first = second = at::Tensor();
    report_ = handle.end_step();
  }

  [[nodiscard]] std::int64_t forward_net(const StepOutcome& outcome, bool casts_present) const {
    std::int64_t net = 0;
    for (const SegmentObservation& item : outcome.segments) {
      if (item.key.kind != SegmentKind::kForward) continue;
      EXPECT_EQ((item.key.variant & SegmentKey::kCastsPresent) != 0, casts_present);
      net += item.sample.net_bytes;
    }
    return net;
  }
};

// The policy is told, and what is measured says which sort of forward it is of. Backwards do not.
TEST_F(CastSegments, AreToldApart) {
  policy_->record = true;
  auto handle = attach_with(0);
  for (int i = 0; i < 3; ++i) pair_step(*handle, /*one_autocast=*/true);
  const auto& outcomes = policy_->outcomes;
  const StepOutcome& first = outcomes[outcomes.size() - 2];
  const StepOutcome& second = outcomes.back();
  EXPECT_FALSE(first.context.casts_present);
  EXPECT_TRUE(second.context.casts_present);
  const std::int64_t casts = forward_net(first, false) - forward_net(second, true);
  std::int64_t weights = 0;
  for (const at::Tensor& parameter : model_->parameters()) {
    if (parameter.dim() > 1) weights += parameter.numel();
  }
  EXPECT_GE(casts, 2 * weights) << "in bfloat16";
  for (const SegmentObservation& item : second.segments) {
    if (item.key.kind != SegmentKind::kBackward && item.key.kind != SegmentKind::kOptimizer)
      continue;
    EXPECT_EQ(item.key.variant & SegmentKey::kCastsPresent, 0);
  }
}

TEST_F(CastSegments, AreOfOneSortWhereEachForwardHasItsAutocast) {
  policy_->record = true;
  auto handle = attach_with(0);
  for (int i = 0; i < 3; ++i) pair_step(*handle, /*one_autocast=*/false);
  for (const StepOutcome& outcome : policy_->outcomes) {
    EXPECT_FALSE(outcome.context.casts_present);
    EXPECT_GT(forward_net(outcome, false), 0);
  }
}

}  // namespace
}  // namespace pudica::testing
