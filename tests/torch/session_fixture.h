// A handle under a policy that does as it is told, over the toy model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"
#include "torch/toy_model.h"

namespace pudica::testing {

// Hands out the plan it was given and remembers what it was told.
class ScriptedPolicy final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "scripted"; }
  [[nodiscard]] bool wants_menus() const override { return menus; }
  void on_structure(const StepStructure& structure) override {
    if (fail_in == "on_structure") throw std::runtime_error("injected");
    structures.push_back(structure);
  }
  StepDecision begin_step(const StepContext& context) override {
    if (fail_in == "begin_step") throw std::runtime_error("injected");
    contexts.push_back(context);
    return {plan ? std::make_shared<const Plan>(*plan) : nullptr, record, may_change};
  }
  std::optional<StepDecision> replan(const StepContext& /*context*/,
                                     std::uint16_t first_class) override {
    if (fail_in == "replan") throw std::runtime_error("injected");
    first_classes.push_back(first_class);
    return other;
  }
  void end_step(const StepOutcome& outcome) override {
    if (fail_in == "end_step") throw std::runtime_error("injected");
    outcomes.push_back(outcome);
  }
  void learn_times(const std::vector<SegmentTime>& times) override {
    if (fail_in == "learn_times") throw std::runtime_error("injected");
    late.push_back(times);
  }

  std::optional<Plan> plan = Plan{};
  bool record = false;
  bool may_change = false;
  bool menus = false;
  std::optional<StepDecision> other;  // of replan()
  std::string fail_in;
  std::vector<StepStructure> structures;
  std::vector<StepContext> contexts;
  std::vector<StepOutcome> outcomes;
  std::vector<std::uint16_t> first_classes;  // that replan() was asked for
  std::vector<std::vector<SegmentTime>> late;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : policy_(std::make_shared<ScriptedPolicy>()) {
    install_meter();
    model_ = std::make_unique<ToyModel>(ToyOptions{.layers = 4});
  }

  std::unique_ptr<Handle> attach_with(std::int64_t budget_bytes,
                                      Enforcement enforcement = Enforcement::kSoft) {
    AttachOptions options;
    options.policy = policy_;
    options.parameters = model_->parameters();
    options.budget_bytes = Bytes(budget_bytes);
    options.enforcement = enforcement;
    options.clock = clock_;
    options.menu_rules = menu_rules_;
    auto handle = attach(std::move(options));
    EXPECT_TRUE(handle.has_value());
    return std::move(*handle);
  }

  // The mode of each layer's forward in the latest step; kNotMeasured: nothing was recorded of it.
  static constexpr Mode kNotMeasured = Mode::offload();
  [[nodiscard]] std::vector<Mode> modes_run() const {
    std::vector<Mode> modes(model_->layers.size(), kNotMeasured);
    for (const SegmentObservation& item : policy_->outcomes.back().segments) {
      if (item.key.kind != SegmentKind::kForward || item.layer < 0) continue;
      modes[static_cast<std::size_t>(item.layer)] = item.key.mode;
    }
    return modes;
  }

  // One forward under the handle, as a step that is left open.
  at::Tensor forward(Handle& handle, std::int64_t length = 16, bool begins_at_layer = false) {
    at::Tensor input = at::randn({2, length, 32});
    const ShapeKey shape{2, length};
    if (!begins_at_layer) handle.begin_step(shape);
    at::Tensor x = input.requires_grad_(true) * 1.0;
    if (begins_at_layer) handle.begin_at_layer(shape);
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      const auto layer = model_->layers[i];
      x = handle.layer(
          static_cast<std::int64_t>(i),
          [this, layer, strange = is_strange_(length)](const at::Tensor& in) {
            return strange ? strange_call_(*layer, in) : layer->forward(in);
          },
          x);
    }
    return x;
  }

  // `holds`: what the forward returned lives on until the next one returns, as in `out = model(x)`.
  std::vector<at::Tensor> train_step(Handle& handle, std::int64_t length = 16, bool holds = false) {
    model_->clear_gradients();
    at::manual_seed(3);
    at::Tensor x = forward(handle, length);
    if (holds) {
      x = x.repeat({1, 1, 8});
      held_ = x;
    }
    torch::autograd::backward({x.pow(2).mean()});
    x = at::Tensor();
    report_ = handle.end_step();
    return gradients();
  }

  [[nodiscard]] std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> gradients;
    for (const auto& p : model_->parameters()) gradients.push_back(p.grad().clone());
    return gradients;
  }

  std::shared_ptr<ScriptedPolicy> policy_;
  // What is revoked first follows from seconds. Null: the device's own clock.
  std::shared_ptr<WorkClock> clock_ = operator_clock();
  std::unique_ptr<ToyModel> model_;
  at::Tensor held_;
  // At which lengths layers run other operators, and how.
  std::function<bool(std::int64_t)> is_strange_ = [](std::int64_t /*length*/) { return false; };
  std::function<at::Tensor(ToyLayer&, const at::Tensor&)> strange_call_ =
      [](ToyLayer& layer, const at::Tensor& in) { return layer.forward(in.sin()); };
  StepReport report_;
  MenuRules menu_rules_;
};

inline Plan plan_of(std::vector<Mode> modes) {
  Plan plan;
  plan.modes = std::move(modes);
  return plan;
}

}  // namespace pudica::testing
