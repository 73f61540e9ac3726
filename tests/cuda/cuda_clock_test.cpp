// The clock of a CUDA device: its own time, told late, waited for by nobody.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/cuda_fixture.h"
#include "pudica/torch.h"
#include "torch/work_clock.h"

namespace pudica::testing {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Records every step that has `record`, and what was told of it later.
class WatchingPolicy final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "watching"; }
  void on_structure(const StepStructure& /*structure*/) override {}
  StepDecision begin_step(const StepContext& context) override {
    auto plan = std::make_shared<Plan>();
    plan->shape = context.shape;
    plan->modes = modes;
    plan->default_mode = Mode::keep();
    return {std::move(plan), true};
  }
  void end_step(const StepOutcome& outcome) override { outcomes.push_back(outcome); }
  void learn_times(const std::vector<SegmentTime>& told) override {
    times.insert(times.end(), told.begin(), told.end());
  }

  std::vector<Mode> modes;
  std::vector<StepOutcome> outcomes;
  std::vector<SegmentTime> times;
};

TEST_F(CudaTest, AWorkTimeIsWhatTheDeviceTook) {
  PUDICA_NEEDS_TIMES();
  const auto clock = hooks::make_device_clock(device_);
  ASSERT_NE(clock, nullptr);
  const hooks::WorkTimer timer(hooks::HostClock{}, clock);
  const at::Tensor square = at::randn({4096, 4096}, on_device());
  at::matmul(square, square);
  hooks::synchronize(device_);
  hooks::WorkTime time;
  const auto wall = Clock::now();
  const hooks::WorkInstant begin = timer.now();
  at::Tensor product = square;
  for (int i = 0; i < 20; ++i) product = at::matmul(square, product);
  const hooks::WorkInstant end = timer.now();
  const double issued = since(wall);
  time.add(begin, end);
  hooks::synchronize(device_);
  const double took = since(wall);
  ASSERT_TRUE(time.seconds().has_value());
  EXPECT_GT(*time.seconds(), 0.3 * (took - issued)) << "not the time in which it was issued";
  EXPECT_LT(*time.seconds(), 1.1 * took);
}

TEST_F(CudaTest, TimesOfARecordedStepAreTheDevices) {
  const auto policy = std::make_shared<WatchingPolicy>();
  AttachOptions options;
  options.policy = policy;
  options.device = device_;
  options.parameters = weights_;
  auto handle = attach(std::move(options));
  ASSERT_TRUE(handle.has_value());
  // The second layer does sixty times what the others do, in as many calls of operators: more by
  // far than what a slow host lets a fast device wait.
  const auto step = [&] {
    (*handle)->begin_step(ShapeKey{4096, 512});
    at::Tensor x = input_.detach().clone().requires_grad_(true) * 1.0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const at::Tensor weight = weights_[i];
      const std::int64_t times = i == 1 ? 60 : 1;
      x = (*handle)->layer(static_cast<std::int64_t>(i),
                           [weight, times](const at::Tensor& in) {
                             const at::Tensor wide = in.repeat({times, 1});
                             return at::gelu(at::matmul(wide, weight)).narrow(0, 0, in.size(0)) +
                                    in;
                           },
                           x, {.layer_class = i == 1 ? "heavy" : "light"});
    }
    torch::autograd::backward({x.pow(2).mean()});
    for (auto& weight : weights_) weight.mutable_grad() = at::Tensor();
    (*handle)->end_step();
  };
  policy->modes = {Mode::full(), Mode::full(), Mode::keep(), Mode::offload()};
  for (int i = 0; i < 6; ++i) {
    step();
    hooks::synchronize(device_);
  }
  EXPECT_EQ((*handle)->failures(), 0);
  // What the device had come to by a step's end is told then, with its segments; the rest later.
  std::vector<SegmentTime> told = policy->times;
  std::size_t untold = 0;
  for (const StepOutcome& outcome : policy->outcomes) {
    for (const SegmentObservation& segment : outcome.segments) {
      if (segment.sample.seconds == 0) ++untold;
      told.push_back({segment.key, outcome.context.shape, segment.sample.seconds, 0});
    }
  }
  EXPECT_LE(policy->times.size(), untold) << "nothing is told twice";
  double heavy = 0;
  double light = 0;
  double copied = 0;
  for (const SegmentTime& time : told) {
    if (time.seconds == 0) continue;
    if (time.key.kind == SegmentKind::kForward && time.key.mode == Mode::full()) {
      (time.key.layer_class == 1 ? heavy : light) = time.seconds;
    }
    const bool again = time.key.kind == SegmentKind::kRecompute;
    if (again && time.key.mode == Mode::offload()) copied = time.seconds;
  }
  EXPECT_GT(light, 0);
  EXPECT_GT(heavy, 3 * light);
  EXPECT_GT(copied, 0);
}

}  // namespace
}  // namespace pudica::testing
