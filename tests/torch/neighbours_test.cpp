// Layers that save their own output: how long that lives hangs on the layer's mode, and with it
// what the backward behind the layer needs. Layers that return more than the next one reads: so
// does what their forward leaves.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "pudica/controller.h"
#include "pudica/peak_model.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kRows = 96;
constexpr std::int64_t kColumns = 32;
constexpr std::size_t kLayers = 4;

class NeighboursTest : public ::testing::Test {
 protected:
  NeighboursTest() : policy_(std::make_shared<ScriptedPolicy>()) {
    install_meter();
    at::set_num_threads(1);
    for (std::size_t i = 0; i < 2 * kLayers; ++i) {
      weights_.push_back((at::randn({kColumns, kColumns}) / 6.).set_requires_grad(true));
    }
    AttachOptions options;
    options.policy = policy_;
    options.parameters = weights_;
    auto handle = attach(std::move(options));
    EXPECT_TRUE(handle.has_value());
    handle_ = std::move(*handle);
    policy_->record = true;
  }

  [[nodiscard]] std::vector<at::Tensor> layer(std::size_t index, const at::Tensor& x) const {
    const at::Tensor inner = at::linear(x, weights_[2 * index]).tanh();
    const at::Tensor out = at::linear(inner, weights_[2 * index + 1]).tanh();
    return returns_inner_ ? std::vector<at::Tensor>{out, inner} : std::vector<at::Tensor>{out};
  }

  // Its backward reads the last layer's output first, and needs most after that.
  [[nodiscard]] at::Tensor head(const at::Tensor& x) const {
    const at::Tensor wide = at::linear(x * 1.0, wide_).tanh();
    return (wide.narrow(-1, 0, kColumns) * x).mean();
  }

  const StepOutcome& step(const std::vector<Mode>& modes) {
    policy_->plan = plan_of(modes);
    policy_->plan->id = 1;
    for (at::Tensor& weight : weights_) weight.mutable_grad() = at::Tensor();
    const at::Tensor input = at::ones({kRows, kColumns}).requires_grad_(true);
    handle_->begin_step(ShapeKey{1, kRows});
    {
      std::vector<at::Tensor> x{input * 1.0};
      for (std::size_t i = 0; i < kLayers; ++i) {
        const auto run = [this, i](const auto& inputs) { return layer(i, inputs[0]); };
        // What x had besides is there until the layer has returned.
        x = handle_->layer(static_cast<std::int64_t>(i), run, {x[0]},
                           LayerOptions{.layer_class = "it"});
      }
      const at::Tensor loss = head(x[0]);
      x.clear();
      torch::autograd::backward({loss});
    }
    handle_->end_step();
    return policy_->outcomes.back();
  }

  static std::vector<Mode> modes_of(std::size_t number) {
    std::vector<Mode> modes;
    for (std::size_t i = 0; i < kLayers; ++i) {
      modes.push_back((number >> i & 1U) != 0 ? Mode::full() : Mode::keep());
    }
    return modes;
  }

  void every_mix_is_predicted();

  bool returns_inner_ = false;
  std::shared_ptr<ScriptedPolicy> policy_;
  std::vector<at::Tensor> weights_;
  at::Tensor wide_ = at::randn({32 * kColumns, kColumns});
  std::unique_ptr<Handle> handle_;
};

// Whichever plans taught it, the model tells the peak of every plan.
void NeighboursTest::every_mix_is_predicted() {
  constexpr std::size_t kPlans = std::size_t{1} << kLayers;
  for (const std::vector<std::size_t>& taught :
       {std::vector<std::size_t>{5, 10}, {3, 9, 6}, {8, 7, 1, 14}}) {
    const auto learner = make_controller({});
    for (const std::size_t number : taught) {
      const StepOutcome& outcome = step(modes_of(number));
      learner->on_structure(policy_->structures.back());
      learner->end_step(outcome);
    }
    for (std::size_t number = 0; number < kPlans; ++number) {
      const StepOutcome& outcome = step(modes_of(number));
      const auto costs = learner->costs(outcome.context);
      ASSERT_TRUE(costs.has_value()) << costs.error().message;
      std::vector<std::uint8_t> choice;
      for (std::size_t i = 0; i < kLayers; ++i) {
        choice.push_back(static_cast<std::uint8_t>(number >> i & 1U));
      }
      EXPECT_EQ(step_peak_bytes(*costs, choice),
                (outcome.peak_bytes - outcome.context.base_bytes).count())
          << number << " taught by " << taught.front();
    }
  }
}

TEST_F(NeighboursTest, EveryMixOfModesIsPredictedToTheByte) { every_mix_is_predicted(); }

TEST_F(NeighboursTest, SoItIsWhereLayersReturnWhatNobodyReads) {
  returns_inner_ = true;
  every_mix_is_predicted();
}

}  // namespace
}  // namespace pudica::testing
