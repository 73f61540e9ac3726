// Threads beside the one that trains: they allocate, attach and detach; nothing they do may race.
#include <atomic>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// Recomputes every layer and records every step.
class FullAndRecorded final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "full and recorded"; }
  void on_structure(const StepStructure& /*structure*/) override {}
  StepDecision begin_step(const StepContext& /*context*/) override {
    Plan plan;
    plan.modes.assign(kLayers, Mode::full());
    return {std::make_shared<const Plan>(plan), /*record=*/true};
  }
  void end_step(const StepOutcome& /*outcome*/) override {}

  static constexpr std::int64_t kLayers = 2;
};

// Allocates and frees on a thread of its own while it lives.
class BusyThread {
 public:
  BusyThread()
      : thread_([this] {
          while (!stop_.load()) {
            const at::Tensor scratch = at::empty({256});
            if (begun_.exchange(true)) continue;
            begun_.notify_all();
          }
        }) {
    begun_.wait(false);
  }
  ~BusyThread() {
    stop_.store(true);
    thread_.join();
  }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::atomic<bool> begun_{false};
  std::thread thread_;
};

std::unique_ptr<Handle> attach_with(std::int64_t budget_bytes) {
  AttachOptions options;
  options.policy = std::make_shared<FullAndRecorded>();
  options.budget_bytes = Bytes(budget_bytes);
  auto handle = attach(std::move(options));
  return handle.has_value() ? std::move(*handle) : nullptr;
}

std::int64_t recomputed_in_step(Handle& handle, const ToyModel& model, const at::Tensor& input) {
  handle.begin_step(ShapeKey{input.size(0), input.size(1)});
  at::Tensor x = input.clone().requires_grad_(true) * 1.0;
  std::int64_t index = 0;
  for (const auto& layer : model.layers) {
    x = handle.layer(
        index++, [layer](const at::Tensor& in) { return layer->forward(in); }, x);
  }
  torch::autograd::backward({x.pow(2).mean()});
  return handle.end_step().recomputed_layers;
}

TEST(Threads, OneAllocatesWhileStepsAreRecorded) {
  const ToyModel model(ToyOptions{.layers = FullAndRecorded::kLayers});
  const at::Tensor input = at::randn({2, 8, 32});
  const BusyThread busy;
  for (int i = 0; i < 5; ++i) {
    const auto handle = attach_with(0);
    ASSERT_NE(handle, nullptr);
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(recomputed_in_step(*handle, model, input), FullAndRecorded::kLayers);
    }
  }
}

TEST(Threads, OneAllocatesAboveTheCapWhileHandlesComeAndGo) {
  install_meter();
  const BusyThread busy;
  for (int i = 0; i < 200; ++i) {
    const auto handle = attach_with(1);
    ASSERT_NE(handle, nullptr);
  }
}

// Of two threads that train one model (a mistake) the one that is inside a layer goes on; what the
// other's step would have torn down is still in use.
TEST(Threads, OneBeginsAStepWhileAnotherIsInsideALayer) {
  const ToyModel model(ToyOptions{.layers = FullAndRecorded::kLayers});
  const at::Tensor input = at::randn({2, 8, 32});
  const auto handle = attach_with(0);
  ASSERT_NE(handle, nullptr);
  const auto other_begins = [&] {
    std::thread([&] {
      handle->begin_step(ShapeKey{2, 8});
      EXPECT_EQ(handle->end_step().layer_calls, 0);
    }).join();
  };
  for (int step = 0; step < 3; ++step) {
    handle->begin_step(ShapeKey{2, 8});
    bool is_forward = true;
    at::Tensor x = input.clone().requires_grad_(true) * 1.0;
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const auto run = [&, i](const at::Tensor& in) {
        const at::Tensor out = model.layers[i]->forward(in);
        if (i == 1 && is_forward) other_begins();
        return out;
      };
      x = handle->layer(static_cast<std::int64_t>(i), run, x);
    }
    is_forward = false;
    torch::autograd::backward({x.pow(2).mean()});
    const StepReport report = handle->end_step();
    EXPECT_EQ(report.layer_calls, FullAndRecorded::kLayers);
    EXPECT_EQ(report.recomputed_layers, FullAndRecorded::kLayers);
  }
  EXPECT_EQ(handle->failures(), 0);
}

TEST(Threads, OneDetachesWhileAnotherAttaches) {
  const ToyModel model(ToyOptions{.layers = FullAndRecorded::kLayers});
  const at::Tensor input = at::randn({2, 8, 32});
  for (int i = 0; i < 50; ++i) {
    auto theirs = attach_with(0);
    std::thread other([&] { theirs.reset(); });
    const auto ours = attach_with(0);
    other.join();
    ASSERT_NE(ours, nullptr) << i;
    ASSERT_EQ(recomputed_in_step(*ours, model, input), FullAndRecorded::kLayers) << i;
  }
}

// The random numbers of the process are everybody's: a layer that draws none leaves them alone.
TEST(Threads, OneDrawsWhileALayerWithoutNoiseIsRunAgain) {
  at::manual_seed(7);
  const at::Tensor first = at::rand({3});
  const at::Tensor second = at::rand({3});
  const auto handle = attach_with(0);
  ASSERT_NE(handle, nullptr);
  at::manual_seed(7);
  handle->begin_step(ShapeKey{2, 8});
  int runs = 0;
  at::Tensor drawn;
  const auto layer = [&](const at::Tensor& x) {
    if (++runs == 2) std::thread([&] { drawn = at::rand({3}); }).join();
    return x.sin().exp();
  };
  const at::Tensor x = at::ones({2, 8}).requires_grad_(true);
  torch::autograd::backward({handle->layer(0, layer, x).sum()});
  EXPECT_EQ(handle->end_step().recomputed_layers, 1);
  ASSERT_EQ(runs, 2);
  EXPECT_TRUE(at::equal(drawn, first));
  EXPECT_TRUE(at::equal(at::rand({3}), second));
}

}  // namespace
}  // namespace pudica::testing
