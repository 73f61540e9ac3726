// Promise 2, the budget holds: a cap below what keeping needs is met by revoking, to the bit.
#include <thread>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// A cap on the CPU meter with a registry that revokes, for one scope.
class CappedScope {
 public:
  CappedScope(std::int64_t bytes_above_now, bool refuse)
      : registry_(std::make_shared<hooks::Registry>(hooks::cpu_meter())) {
    auto& meter = hooks::cpu_meter();
    meter.set_pressure_callback([registry = registry_](std::int64_t missing_bytes) {
      return registry->revoke(missing_bytes);
    });
    meter.set_cap(meter.in_use_bytes() + bytes_above_now, refuse);
  }
  ~CappedScope() {
    hooks::cpu_meter().set_cap(0, false);
    hooks::cpu_meter().set_pressure_callback(nullptr);
  }
  [[nodiscard]] const std::shared_ptr<hooks::Registry>& registry() const { return registry_; }

 private:
  std::shared_ptr<hooks::Registry> registry_;
};

class Revocation : public ::testing::Test {
 protected:
  Revocation() {
    hooks::cpu_meter();
    model_ = std::make_unique<ToyModel>(ToyOptions{.layers = 8});
    input_ = at::randn({4, 64, 32});
    run_step(*model_, input_, {});
    reference_ = run_step(*model_, input_, {});
    StepPlan full;
    full.treatments = {Treatment::kFull};
    full_peak_ = run_step(*model_, input_, full).peak_bytes;
    // What run_step keeps of the step (gradients, their copies) is not part of the peak.
    model_->clear_gradients();
  }

  StepResult run_capped(std::int64_t cap_above_base, bool refuse) {
    const CappedScope cap(cap_above_base, refuse);
    StepPlan plan;
    plan.treatments = {Treatment::kKeep};
    plan.registry = cap.registry();
    StepResult result = run_step(*model_, input_, plan);
    revocations_ = cap.registry()->revocations();
    EXPECT_TRUE(!refuse || hooks::cpu_meter().peak_bytes() <= hooks::cpu_meter().cap_bytes());
    return result;
  }

  std::unique_ptr<ToyModel> model_;
  at::Tensor input_;
  StepResult reference_;
  std::int64_t full_peak_ = 0;
  std::int64_t revocations_ = 0;
};

TEST_F(Revocation, MeetsEveryCapDownToCheckpointAllsPeak) {
  const std::int64_t keep_peak = reference_.peak_bytes;
  std::int64_t previous = 0;
  for (const double fraction : {0.9, 0.7, 0.5, 0.3, 0.1, 0.02}) {
    const auto cap = full_peak_ + static_cast<std::int64_t>(
                                      fraction * static_cast<double>(keep_peak - full_peak_));
    const StepResult result = run_capped(cap, /*refuse=*/true);
    expect_identical(reference_, result);
    EXPECT_GE(revocations_, previous) << fraction;
    EXPECT_GE(revocations_, 1) << fraction;
    previous = revocations_;
  }
  EXPECT_GE(previous, 6);
}

TEST_F(Revocation, HardRefusesWhenNothingIsLeftAndTheNextStepIsClean) {
  EXPECT_THROW(run_capped(full_peak_ / 2, /*refuse=*/true), c10::OutOfMemoryError);
  expect_identical(reference_, run_step(*model_, input_, {}));
}

TEST_F(Revocation, SoftGoesOnAndCountsTheOverrun) {
  const std::int64_t before = hooks::cpu_meter().overruns();
  expect_identical(reference_, run_capped(full_peak_ / 2, /*refuse=*/false));
  EXPECT_GT(hooks::cpu_meter().overruns(), before);
}

TEST_F(Revocation, RetainedGraphUnderACap) {
  StepPlan plan;
  plan.backward_passes = 3;
  const StepResult expected = run_step(*model_, input_, plan);
  model_->clear_gradients();
  const CappedScope cap(full_peak_ + (reference_.peak_bytes - full_peak_) / 3, true);
  plan.treatments = {Treatment::kKeep};
  plan.registry = cap.registry();
  expect_identical(expected, run_step(*model_, input_, plan));
  EXPECT_GE(cap.registry()->revocations(), 1);
}

TEST_F(Revocation, OldestGoesFirstAmongEquals) {
  const auto registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
  struct Log final : hooks::FrameObserver {
    void before_recompute(std::int32_t) noexcept override {}
    void after_recompute(std::int32_t) noexcept override {}
    void recovered(std::int32_t /*layer*/, const hooks::WorkTime& /*time*/) noexcept override {}
    void trial_passed(std::uint16_t, const hooks::BufferPlaces&, bool) noexcept override {}
    void trial_due(std::uint16_t, const hooks::BufferPlaces&) noexcept override {}
    void revoked(std::int32_t layer) noexcept override { order.push_back(layer); }
    void recompute_deviated(std::int32_t, std::uint16_t, const std::string&) noexcept override {}
    std::vector<std::int32_t> order;
  };
  const auto log = std::make_shared<Log>();
  at::Tensor x = input_.clone().requires_grad_(true) * 1.0;
  for (std::size_t i = 0; i < model_->layers.size(); ++i) {
    hooks::FrameOptions options;
    options.registry = registry;
    options.layer = static_cast<std::int32_t>(i);
    options.expected_recompute_us = i == 5 ? 1.0 : 100.0;  // layer 5 is cheap to recompute
    options.observer = log;
    auto frame = hooks::Frame::make(options);
    const auto layer = model_->layers[i];
    x = frame->run_part(
        [layer](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{layer->forward(in[0])};
        },
        {x}, {})[0];
    frame->finish();
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(registry->revoke(1));
  EXPECT_EQ(log->order, (std::vector<std::int32_t>{5, 0, 1}));
  torch::autograd::backward({x.pow(2).mean()});
}

TEST_F(Revocation, TwoThreadsWithTwoModelsUnderOneCap) {
  ToyModel other(ToyOptions{.layers = 8}, 7);
  const auto one = [&](ToyModel& model, const std::shared_ptr<hooks::Registry>& registry) {
    // No dropout: the default generator is shared between the threads.
    at::Tensor x = input_.clone().requires_grad_(true) * 1.0;
    for (const auto& layer : model.layers) {
      hooks::FrameOptions options;
      options.registry = registry;
      auto frame = hooks::Frame::make(options);
      x = frame->run_part(
          [layer](const std::vector<at::Tensor>& in) {
            auto quiet = *layer;
            quiet.options.dropout = 0.0;
            return std::vector<at::Tensor>{quiet.forward(in[0])};
          },
          {x}, {})[0];
      frame->finish();
    }
    torch::autograd::backward({x.pow(2).mean()});
    std::vector<at::Tensor> gradients;
    for (const auto& p : model.parameters()) gradients.push_back(p.grad().clone());
    return gradients;
  };
  model_->clear_gradients();
  const auto expected = one(*model_, nullptr);
  model_->clear_gradients();
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  {
    const CappedScope cap(full_peak_ + reference_.peak_bytes, /*refuse=*/false);
    std::thread thread([&] { second = one(other, cap.registry()); });
    first = one(*model_, cap.registry());
    thread.join();
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(expected[i], first[i]));
    EXPECT_TRUE(at::equal(expected[i], second[i]));
  }
}

}  // namespace
}  // namespace pudica::testing
