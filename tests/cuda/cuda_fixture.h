// A chain of layers on a CUDA device; skips where there is none. On the emulated device bytes,
// order and counts are what they are on a real one; tests of values and of times skip there.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/frame.h"
#include "torch/meter.h"

// Kernels do nothing there: what was computed is noise, and tensors compared on it count as equal.
#define PUDICA_NEEDS_VALUES()                             \
  if (std::getenv("PUDICA_EMULATED_DEVICE") != nullptr) { \
    GTEST_SKIP() << "values: needs a real device";        \
  }                                                       \
  static_assert(true)
// What a device's clock says there has nothing to do with the host's.
#define PUDICA_NEEDS_TIMES()                              \
  if (std::getenv("PUDICA_EMULATED_DEVICE") != nullptr) { \
    GTEST_SKIP() << "times: needs a real device";         \
  }                                                       \
  static_assert(true)

namespace pudica::testing {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
    hooks::install_engine();
    meter_ = hooks::meter_for(device_);
    ASSERT_NE(meter_, nullptr);
    at::manual_seed(5);
    for (int i = 0; i < 4; ++i) {
      weights_.push_back((at::randn({512, 512}, on_device()) / 22.0).set_requires_grad(true));
    }
    input_ = at::randn({4096, 512}, on_device());
  }

  [[nodiscard]] at::TensorOptions on_device() const { return at::TensorOptions().device(device_); }

  struct Result {
    std::vector<at::Tensor> gradients;
    std::int64_t peak_bytes = 0;
  };

  // One step, every layer in a frame with these options.
  Result step(const hooks::FrameOptions& options) {
    for (auto& weight : weights_) weight.mutable_grad() = at::Tensor();
    at::manual_seed(11);
    meter_->reset_peak();
    const std::int64_t base = meter_->in_use_bytes();
    at::Tensor x = input_.detach().clone().requires_grad_(true) * 1.0;
    for (const at::Tensor& weight : weights_) {
      auto frame = hooks::Frame::make(options);
      x = frame->run_part(
          [weight](const std::vector<at::Tensor>& in) {
            const at::Tensor wide = at::gelu(at::matmul(in[0], weight));
            return std::vector<at::Tensor>{in[0] + at::dropout(wide, 0.1, true).tanh()};
          },
          {x}, {})[0];
      frame->finish();
    }
    torch::autograd::backward({x.pow(2).mean()});
    x = at::Tensor();
    Result result;
    result.peak_bytes = meter_->peak_bytes() - base;
    for (const auto& weight : weights_) result.gradients.push_back(weight.grad().clone());
    return result;
  }

  // Of values: a test that calls it begins with PUDICA_NEEDS_VALUES.
  static void expect_equal(const Result& expected, const Result& actual) {
    ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(expected.gradients[i], actual.gradients[i])) << i;
    }
  }

  hooks::FrameOptions options(bool store = true) const {
    hooks::FrameOptions options;
    options.store = store;
    options.device = device_;
    return options;
  }

  c10::Device device_{c10::DeviceType::CUDA, 0};
  hooks::Meter* meter_ = nullptr;
  std::vector<at::Tensor> weights_;
  at::Tensor input_;
};

}  // namespace pudica::testing
