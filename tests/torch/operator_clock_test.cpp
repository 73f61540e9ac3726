#include "torch/operator_clock.h"

#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/session_fixture.h"
#include "torch/work_clock.h"

namespace pudica::testing {
namespace {

using hooks::load_of;

hooks::OperatorLoad load(const char* name, const std::vector<c10::IValue>& arguments) {
  return load_of(name, c10::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()));
}

double flops(const char* name, const std::vector<c10::IValue>& arguments) {
  return load(name, arguments).flops;
}

TEST(OperatorLoad, ProductsAreCountedByTheirSizes) {
  const at::Tensor a = at::zeros({3, 5});
  const at::Tensor b = at::zeros({5, 7});
  EXPECT_EQ(flops("aten::mm", {a, b}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("mm", {a, b}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("aten::addmm", {at::zeros({7}), a, b}), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("aten::linear", {at::zeros({2, 3, 5}), at::zeros({7, 5})}), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("aten::bmm", {at::zeros({2, 3, 5}), at::zeros({2, 5, 7})}), 2 * 2 * 3 * 5 * 7);
  const at::Tensor heads = at::zeros({2, 4, 10, 8});
  EXPECT_EQ(flops("aten::scaled_dot_product_attention", {heads, heads, heads}),
            4 * 2 * 4 * 10 * 10 * 8);
  EXPECT_EQ(flops("aten::tanh", {a}), 0);
}

TEST(OperatorLoad, BytesAreThoseRead) {
  EXPECT_EQ(load("aten::add", {at::zeros({3, 5}), at::zeros({2}), 1}).bytes, 4 * (15 + 2));
}

TEST(OperatorLoad, OddArgumentsCountForNothing) {
  EXPECT_EQ(flops("aten::mm", {}), 0);
  EXPECT_EQ(flops("aten::mm", {1, at::Tensor()}), 0);
  EXPECT_EQ(flops("aten::bmm", {at::zeros({}), at::zeros({})}), 2);
}

double taken(const std::function<void()>& work) {
  const auto clock = operator_clock();
  const double before = clock->seconds();
  work();
  return clock->seconds() - before;
}

TEST(OperatorClock, TellsTheSameOfTheSameWork) {
  const at::Tensor x = at::randn({16, 32});
  const auto work = [&x] { static_cast<void>(at::linear(x, at::randn({8, 32})).tanh()); };
  const double once = taken(work);
  EXPECT_GT(once, 0);
  EXPECT_NEAR(taken(work), once, 1e-11);
  EXPECT_NEAR(taken([&work] { std::thread(work).join(); }), once, 1e-11);
  EXPECT_GT(taken([&x] { static_cast<void>(at::mm(x, at::randn({32, 4096}))); }), 2 * once);
}

// To the last bit, or a tie between two plans would go this way or that.
TEST(OperatorClock, WhatPassesDoesNotDependOnWhatPassedBefore) {
  const auto clock = operator_clock();
  const hooks::HostClock host(clock);
  const at::Tensor x = at::randn({3, 7});
  const auto once = [&] {
    const hooks::HostInstant begin = host.now();
    static_cast<void>(at::mm(x, x.t()).tanh());
    return host.now().seconds_since(begin);
  };
  const double first = once();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(once(), first) << i;
}

class OperatorClockInSteps : public SessionTest {
 protected:
  double step_in_mode(Mode mode) {
    policy_->plan = plan_of(std::vector<Mode>(4, mode));
    const auto handle = attach_with(0);
    static_cast<void>(train_step(*handle));
    return taken([&] { static_cast<void>(train_step(*handle)); });
  }
};

TEST_F(OperatorClockInSteps, WhatRunsAgainCounts) {
  const double kept = step_in_mode(Mode::keep());
  EXPECT_GT(step_in_mode(Mode::full()), 1.1 * kept);
}

TEST_F(OperatorClockInSteps, AStepTakesItsTime) {
  AttachOptions options;
  options.policy = policy_;
  options.clock = operator_clock();
  policy_->record = true;
  auto handle = attach(std::move(options));
  ASSERT_TRUE(handle.has_value());
  double whole = 0;
  for (int step = 0; step < 2; ++step) {
    whole = taken([&] { static_cast<void>(train_step(**handle)); });
  }
  const StepOutcome& outcome = policy_->outcomes.back();
  EXPECT_GT(outcome.seconds, whole / 2);
  EXPECT_LE(outcome.seconds, whole);
  double sum = 0;
  for (const SegmentObservation& one : outcome.segments) sum += one.sample.seconds;
  EXPECT_GT(sum, .9 * outcome.seconds);
  EXPECT_LE(sum, outcome.seconds + 1e-9);
}

}  // namespace
}  // namespace pudica::testing
