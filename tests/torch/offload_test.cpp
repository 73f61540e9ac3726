// Mode `offload`: what leaves the device, when it comes back, and what happens without room.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/frame.h"
#include "torch/host_tier.h"
#include "torch/meter.h"
#include "torch/offload_habit.h"
#include "torch/session_fixture.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;

class Offload : public ::testing::Test {
 protected:
  Offload() {
    hooks::install_engine();
    hooks::cpu_meter();
    model_ = std::make_unique<ToyModel>(ToyOptions{.layers = 4, .hidden = 64});
    input_ = at::randn({2, 96, 64});
    host_ = hooks::make_simulated_host_tier({});
  }

  StepResult run(std::vector<Treatment> treatments, StepPlan plan = {}) {
    plan.treatments = std::move(treatments);
    plan.host = host_;
    return run_step(*model_, input_, plan);
  }

  std::unique_ptr<ToyModel> model_;
  at::Tensor input_;
  std::shared_ptr<hooks::HostTier> host_;
};

TEST_F(Offload, BytesWaitOnTheHostAndAreGoneAfterTheBackward) {
  run({Treatment::kPlain});
  std::int64_t base = 0;
  std::int64_t away = 0;
  std::int64_t left = 0;
  StepPlan plan;
  plan.after_forward = [&] {
    away = host_->in_use_bytes();
    left = hooks::cpu_meter().in_use_bytes() - base;
  };
  base = hooks::cpu_meter().in_use_bytes();
  const StepResult kept = run({Treatment::kKeep}, plan);
  const std::int64_t left_kept = left;
  EXPECT_EQ(away, 0);
  base = hooks::cpu_meter().in_use_bytes();
  const StepResult offloaded = run({Treatment::kOffload}, plan);
  expect_identical(kept, offloaded);
  EXPECT_GT(away, 0);
  // Gradients of the run before are among the base, and freed when the run begins.
  const std::int64_t gradients = left_kept - left - away;
  EXPECT_GE(gradients, 0);
  EXPECT_LT(gradients, 1 * kMiB);
  EXPECT_EQ(host_->in_use_bytes(), 0);
  EXPECT_LT(offloaded.peak_bytes, kept.peak_bytes * 2 / 3);
}

TEST_F(Offload, BackwardNeedsLessThanRunningTheLayerAgain) {
  run({Treatment::kPlain});
  // What was read is let go of while the rest still waits: the layer is never whole again.
  EXPECT_LE(run({Treatment::kOffload}).peak_bytes, run({Treatment::kFull}).peak_bytes);
}

TEST_F(Offload, InPlaceChangesOfWhatStayedAreRefused) {
  const at::Tensor leaf = at::randn({32, 32}).requires_grad_(true);
  at::Tensor held;
  auto frame = hooks::Frame::make({.host = host_});
  at::Tensor out = frame->run_part(
      [&](const std::vector<at::Tensor>& in) {
        held = in[0].exp();
        return std::vector<at::Tensor>{held * 2.0};
      },
      {leaf}, {})[0];
  frame->finish();
  EXPECT_FALSE(frame->offloaded()) << "it is still referenced here";
  held.add_(1.0);
  EXPECT_THROW(torch::autograd::backward({out.sum()}), c10::Error);
}

TEST_F(Offload, WhatOthersHoldStaysOnTheDevice) {
  const at::Tensor leaf = at::randn({64, 64}).requires_grad_(true);
  at::Tensor held;
  auto frame = hooks::Frame::make({.host = host_});
  const at::Tensor out = frame->run_part(
      [&](const std::vector<at::Tensor>& in) {
        held = in[0].exp();
        return std::vector<at::Tensor>{held.sin()};
      },
      {leaf}, {})[0];
  frame->finish();
  EXPECT_FALSE(frame->offloaded()) << "the only saved tensor is in the user's hands";
  EXPECT_EQ(host_->in_use_bytes(), 0);
  torch::autograd::backward({out.sum()});
  EXPECT_TRUE(at::allclose(leaf.grad(), leaf.exp().cos() * leaf.exp()));
}

TEST_F(Offload, WithoutRoomAllOfItStaysAndCanBeRevoked) {
  host_ = hooks::make_simulated_host_tier({.host_bytes = Bytes(300'000)});
  const StepResult plain = run({Treatment::kPlain});
  StepPlan plan;
  plan.registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
  std::int64_t away = 0;
  bool freed = false;
  plan.after_forward = [&] {
    away = host_->in_use_bytes();
    freed = plan.registry->revoke(1);
  };
  expect_identical(plain, run({Treatment::kOffload}, plan));
  EXPECT_LE(away, 300'000);
  EXPECT_TRUE(freed) << "a layer that stayed can be revoked";
  EXPECT_EQ(host_->in_use_bytes(), 0);
}

TEST_F(Offload, GraphThatIsDroppedUnreadGivesThePlaceBack) {
  {
    at::Tensor x = input_.detach().clone().requires_grad_(true) * 1.0;
    auto frame = hooks::Frame::make({.host = host_});
    const auto layer = model_->layers[0];
    x = frame->run_part(
        [layer](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{layer->forward(in[0])};
        },
        {x}, {})[0];
    frame->finish();
    ASSERT_TRUE(frame->offloaded());
    EXPECT_GT(host_->in_use_bytes(), 0);
  }
  EXPECT_EQ(host_->in_use_bytes(), 0);
}

// Under a cap a little below what one tensor ahead takes, that one makes room and comes again.
TEST_F(Offload, WhatWasFetchedAheadMakesRoom) {
  hooks::Meter& meter = hooks::cpu_meter();
  const auto registry = std::make_shared<hooks::Registry>(meter);
  meter.set_pressure_callback(
      [registry](std::int64_t missing) { return registry->revoke(missing); });
  const auto gradients_and_peak = [&](std::int64_t cap) {
    const at::Tensor leaf = at::ones({256, 256}).requires_grad_(true);
    auto frame = hooks::Frame::make({.registry = registry, .host = host_});
    const at::Tensor sum = frame->run_part(
        [](const std::vector<at::Tensor>& in) {
          at::Tensor x = in[0] * 1.0;
          for (int i = 0; i < 4; ++i) x = x.sin().sigmoid();
          return std::vector<at::Tensor>{x.sum()};
        },
        {leaf}, {})[0];
    frame->finish();
    EXPECT_TRUE(frame->offloaded());
    frame.reset();
    meter.reset_peak();
    const std::int64_t before = meter.in_use_bytes();
    meter.set_cap(cap > 0 ? before + cap : 0, /*refuse=*/true);
    torch::autograd::backward({sum});
    meter.set_cap(0, false);
    return std::make_pair(leaf.grad(), meter.peak_bytes() - before);
  };
  const auto [expected, ahead_bytes] = gradients_and_peak(0);
  const std::int64_t refusals = meter.refusals();
  const auto [gradient, tight_bytes] = gradients_and_peak(ahead_bytes - 1);
  EXPECT_TRUE(at::equal(expected, gradient));
  EXPECT_LT(tight_bytes, ahead_bytes);
  EXPECT_EQ(meter.refusals(), refusals);
  EXPECT_EQ(registry->revocations(), 0) << "nothing is computed again";
  meter.set_pressure_callback(nullptr);
}

TEST(TransferLink, TransfersFollowEachOther) {
  const hooks::TransferLink::Clock::time_point start{};
  hooks::TransferLink link(1e6);
  EXPECT_EQ(link.begin(2000, start) - start, milliseconds(2));
  EXPECT_EQ(link.begin(1000, start + milliseconds(1)) - start, milliseconds(3));
  EXPECT_EQ(link.begin(1000, start + milliseconds(9)) - start, milliseconds(10));
  hooks::TransferLink at_once(0);
  EXPECT_EQ(at_once.begin(1 << 30, start), start);
  EXPECT_LE(at_once.free_at(), start);
}

// Seconds as the test sets them.
class SetClock final : public WorkClock {
 public:
  [[nodiscard]] double seconds() noexcept override { return now; }
  double now = 0;
};

TEST(SimulatedHostTier, UnderASetClockCopiesTakeWhatTheirBytesDoAndNobodyWaits) {
  const auto clock = std::make_shared<SetClock>();
  const double kDay = 86'400;  // that nobody waits for, or the test never ends
  const at::Tensor day_of_bytes = at::ones({1000});
  const auto host = hooks::make_simulated_host_tier(
      {.simulated_bytes_per_second = static_cast<double>(day_of_bytes.nbytes()) / kDay},
      hooks::HostClock(clock));
  const double copying = static_cast<double>(day_of_bytes.nbytes()) / 1e10;
  const auto away = host->store(day_of_bytes.storage());
  ASSERT_NE(away, nullptr);
  clock->now = kDay / 4;
  EXPECT_NEAR(host->fence(), 3 * kDay / 4 + copying, 1e-3);
  EXPECT_EQ(host->fence(), 0) << "counted once";
  static_cast<void>(host->load(*away));
  static_cast<void>(host->load(*away));
  EXPECT_NEAR(host->arrive(), 2 * kDay + 2 * copying, 1e-3);
  static_cast<void>(host->load(*away));
  clock->now += 2 * kDay;
  EXPECT_NEAR(host->arrive(), copying, 1e-12) << "it came in the meantime";
}

TEST_F(SessionTest, AppliesOffloadAndMeasuresIt) {
  auto handle = attach_with(0);
  policy_->plan->revocable = false;
  const auto expected = train_step(*handle);
  const auto above_base = [&] { return (report_.peak_bytes - report_.base_bytes).count(); };
  const std::int64_t kept_bytes = above_base();
  policy_->record = true;
  policy_->plan = plan_of({Mode::offload(), Mode::keep(), Mode::offload(), Mode::offload()});
  expect_equal(expected, train_step(*handle));
  EXPECT_EQ(report_.recomputed_layers, 0);
  EXPECT_LT(above_base(), kept_bytes);
  const auto& segments = policy_->outcomes.back().segments;
  const auto of = [&](SegmentKind kind, Mode mode) {
    std::vector<SegmentObservation> found;
    for (const auto& one : segments) {
      if (one.key.kind == kind && one.key.mode == mode) found.push_back(one);
    }
    return found;
  };
  ASSERT_EQ(of(SegmentKind::kForward, Mode::offload()).size(), 3U);
  ASSERT_EQ(of(SegmentKind::kBackward, Mode::offload()).size(), 3U);
  const auto transfers = of(SegmentKind::kRecompute, Mode::offload());
  ASSERT_EQ(transfers.size(), 3U);
  for (const auto& one : transfers) EXPECT_GT(one.sample.seconds, 0);
  const auto away = of(SegmentKind::kForward, Mode::offload())[0].sample;
  const auto kept = of(SegmentKind::kForward, Mode::keep())[0].sample;
  EXPECT_LT(away.net_bytes, kept.net_bytes / 2);
  EXPECT_EQ(report_.host_peak_bytes, Bytes(3 * (kept.net_bytes - away.net_bytes)));
  EXPECT_EQ(policy_->outcomes.back().host_peak_bytes, report_.host_peak_bytes);
  EXPECT_EQ(away.peak_bytes, kept.peak_bytes) << "until the layer ends all is there";
}

TEST_F(SessionTest, AHostThatIsFullLeavesLayersKept) {
  AttachOptions options;
  options.policy = policy_;
  options.parameters = model_->parameters();
  options.budget_bytes = Bytes(64 * kMiB);
  options.offload.host_bytes = Bytes(1);
  options.clock = clock_;
  auto handle = attach(std::move(options));
  ASSERT_TRUE(handle.has_value());
  policy_->record = true;
  policy_->plan = plan_of(std::vector<Mode>(4, Mode::offload()));
  policy_->plan->revocable = false;
  train_step(**handle);
  EXPECT_EQ((*handle)->failures(), 0);
  train_step(**handle);
  for (const auto& segment : policy_->outcomes.back().segments) {
    EXPECT_EQ(segment.key.mode, Mode::keep()) << "nothing is learned of what did not happen";
  }
}

}  // namespace
}  // namespace pudica::testing
