#include "torch/toy_model.h"

#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pudica/torch.h"
#include "torch/forwarding_engine.h"
#include "torch/meter.h"

namespace pudica::testing {
namespace {

enum Parameter : std::size_t { kQ, kK, kV, kO, kF1, kF2, kBias1, kBias2, kN1, kN1b, kN2, kN2b };

hooks::FrameFunction as_function(const std::shared_ptr<ToyLayer>& layer) {
  return [layer](const std::vector<at::Tensor>& x) {
    return std::vector<at::Tensor>{layer->forward(x[0])};
  };
}

// The layer as two frames inside one: attention and feed-forward each in a frame of their own.
hooks::FrameFunction as_nested(const std::shared_ptr<ToyLayer>& layer, bool store) {
  return [layer, store](const std::vector<at::Tensor>& x) {
    auto run = [&](auto method, const at::Tensor& input) {
      hooks::FrameOptions options;
      options.store = store;
      auto frame = hooks::Frame::make(options);
      auto outputs = frame->run_part(
          [layer, method](const std::vector<at::Tensor>& in) {
            return std::vector<at::Tensor>{((*layer).*method)(in[0])};
          },
          {input}, {});
      frame->finish();
      return outputs[0];
    };
    const at::Tensor middle = run(&ToyLayer::attend, x[0]);
    return std::vector<at::Tensor>{run(&ToyLayer::feed_forward, middle)};
  };
}

bool by_tape(Treatment treatment) { return treatment >= Treatment::kTapeKeep; }

std::int32_t menu_step(Treatment treatment, const hooks::ClassTapes& tapes) {
  const auto menu = tapes.menu();
  if (!menu) return hooks::FrameOptions::kNoStep;
  const auto steps = static_cast<std::int32_t>(menu->steps.size());
  if (treatment == Treatment::kTapeFirst) return 0;
  if (treatment == Treatment::kTapeMiddle || treatment == Treatment::kTapeMiddleRevokedWhole) {
    return steps / 2;
  }
  if (treatment == Treatment::kTapeLast) return steps - 1;
  return hooks::FrameOptions::kNoStep;
}

at::Tensor run_layer(const std::shared_ptr<ToyLayer>& layer, const at::Tensor& x,
                     Treatment treatment, const StepPlan& plan,
                     const std::shared_ptr<hooks::Registry>& registry) {
  if (treatment == Treatment::kPlain) return layer->forward(x);
  hooks::FrameOptions options;
  options.store = treatment != Treatment::kFull && treatment != Treatment::kNestedFull;
  if (options.store) options.registry = registry;
  // What is revoked first follows from seconds.
  options.timer = hooks::WorkTimer(hooks::HostClock(operator_clock()));
  if (by_tape(treatment)) {
    options.expected_recompute_us = 1e12;  // running all of it again comes last
    options.tapes = plan.tapes;
    options.menu_step = menu_step(treatment, *plan.tapes);
  }
  if (treatment == Treatment::kOffload || treatment == Treatment::kNestedOffload) {
    options.host = plan.host ? plan.host : hooks::make_simulated_host_tier({});
  }
  if (treatment == Treatment::kOffloadRefused) {
    options.host = hooks::make_simulated_host_tier({.host_bytes = Bytes(1000)});
  }
  const bool nested = treatment == Treatment::kNestedOffload ||
                      treatment == Treatment::kNestedFull || treatment == Treatment::kNestedKeep ||
                      treatment == Treatment::kTapeNested;
  auto frame = hooks::Frame::make(options);
  auto outputs =
      frame->run_part(nested ? as_nested(layer, /*store=*/false) : as_function(layer), {x}, {});
  frame->finish();
  if (treatment == Treatment::kRevoked || treatment == Treatment::kTapeRevokedSome ||
      treatment == Treatment::kOffloadRefused) {
    registry->revoke(1);
  }
  if (treatment == Treatment::kTapeRevokedAll) {
    while (frame->gives_single_tensors()) registry->revoke(1);
  }
  if (treatment == Treatment::kTapeRevokedWhole ||
      treatment == Treatment::kTapeMiddleRevokedWhole) {
    registry->revoke(std::int64_t{1} << 40U);
  }
  return outputs[0];
}

}  // namespace

Autocast::Autocast(bool on) : on_(on), was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)) {
  if (!on_) return;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
}

ToyLayer::ToyLayer(const ToyOptions& toy) : options(toy) {
  const std::int64_t d = toy.hidden;
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  for (int i = 0; i < 4; ++i) parameters.push_back(at::randn({d, d}) * scale);
  parameters.push_back(at::randn({4 * d, d}) * scale);
  parameters.push_back(at::randn({d, 4 * d}) * scale);
  parameters.push_back(at::zeros({4 * d}));
  parameters.push_back(at::zeros({d}));
  for (int i = 0; i < 2; ++i) {
    parameters.push_back(at::ones({d}));
    parameters.push_back(at::zeros({d}));
  }
  for (auto& parameter : parameters) parameter.set_requires_grad(true);
}

at::Tensor ToyLayer::attend(const at::Tensor& input) const {
  const auto& p = parameters;
  const std::int64_t heads = options.heads;
  const std::int64_t d = options.hidden;
  const at::Tensor x = options.pre_norm ? at::layer_norm(input, {d}, p[kN1], p[kN1b]) : input;
  const std::int64_t b = x.size(0);
  const std::int64_t s = x.size(1);
  const auto split = [&](const at::Tensor& t) {
    return t.view({b, s, heads, d / heads}).transpose(1, 2);
  };
  const at::Tensor q = split(at::linear(x, p[kQ]));
  const at::Tensor k = split(at::linear(x, p[kK]));
  const at::Tensor v = split(at::linear(x, p[kV]));
  at::Tensor mixed;
  if (options.attention == Attention::kFlash) {
    mixed = at::scaled_dot_product_attention(q, k, v);
  } else {
    at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) /
                        std::sqrt(static_cast<double>(d) / static_cast<double>(heads));
    scores = at::dropout(at::softmax(scores, -1), options.dropout, true);
    mixed = at::matmul(scores, v);
  }
  mixed = at::linear(mixed.transpose(1, 2).reshape({b, s, d}), p[kO]);
  const at::Tensor sum = input + at::dropout(mixed, options.dropout, true);
  return options.pre_norm ? sum : at::layer_norm(sum, {d}, p[kN1], p[kN1b]);
}

at::Tensor ToyLayer::feed_forward(const at::Tensor& input) const {
  const auto& p = parameters;
  const std::int64_t d = options.hidden;
  const at::Tensor x = options.pre_norm ? at::layer_norm(input, {d}, p[kN2], p[kN2b]) : input;
  at::Tensor wide = at::linear(x, p[kF1], p[kBias1]);
  wide = options.in_place ? wide.mul_(0.5).relu_() : at::gelu(wide);
  const at::Tensor out = at::dropout(at::linear(wide, p[kF2], p[kBias2]), options.dropout, true);
  const at::Tensor sum = input + out;
  return options.pre_norm ? sum : at::layer_norm(sum, {d}, p[kN2], p[kN2b]);
}

at::Tensor ToyLayer::forward(const at::Tensor& x) const { return feed_forward(attend(x)); }

ToyModel::ToyModel(const ToyOptions& toy, std::uint64_t seed) : options(toy) {
  at::manual_seed(seed);
  for (std::int64_t i = 0; i < toy.layers; ++i) layers.push_back(std::make_shared<ToyLayer>(toy));
}

std::vector<at::Tensor> ToyModel::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& layer : layers) {
    all.insert(all.end(), layer->parameters.begin(), layer->parameters.end());
  }
  return all;
}

void ToyModel::clear_gradients() {
  for (auto& parameter : parameters()) parameter.mutable_grad() = at::Tensor();
}

StepResult run_step(ToyModel& model, const at::Tensor& input, const StepPlan& plan) {
  hooks::install_engine();
  const auto clock = operator_clock();  // one for all frames
  const auto registry =
      plan.registry ? plan.registry : std::make_shared<hooks::Registry>(hooks::cpu_meter());
  model.clear_gradients();
  at::manual_seed(11);
  hooks::cpu_meter().reset_peak();
  const std::int64_t base = hooks::cpu_meter().in_use_bytes();
  at::Tensor leaf = input.detach().clone().requires_grad_(true);
  StepResult result;
  {
    at::Tensor x = leaf * 1.0;
    const Autocast autocast(model.options.autocast_bf16);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      x = run_layer(model.layers[i], x, plan.treatments[i % plan.treatments.size()], plan,
                    registry);
      if (plan.during_backward && i + 1 == model.layers.size() / 2) {
        x.register_hook([hook = plan.during_backward](const at::Tensor&) {
          hook();
          return at::Tensor();
        });
      }
    }
    result.loss = x.to(at::kFloat).pow(2).mean();
  }
  if (plan.after_forward) plan.after_forward();
  for (int pass = 0; pass < plan.backward_passes; ++pass) {
    const bool last = pass + 1 == plan.backward_passes;
    torch::autograd::backward({result.loss}, {}, /*retain_graph=*/!last);
    if (!last && plan.after_backward) plan.after_backward();
  }
  for (const auto& parameter : model.parameters()) {
    result.gradients.push_back(parameter.grad().clone());
  }
  result.gradients.push_back(leaf.grad().clone());
  result.loss = result.loss.detach();
  result.peak_bytes = hooks::cpu_meter().peak_bytes() - base;
  return result;
}

void expect_equal(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(expected[i], actual[i])) << i;
  }
}

void expect_identical(const StepResult& expected, const StepResult& actual) {
  EXPECT_TRUE(at::equal(expected.loss, actual.loss));
  expect_equal(expected.gradients, actual.gradients);
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    ASSERT_TRUE(expected.gradients[i].defined());
    EXPECT_GT(expected.gradients[i].abs().sum().item<double>(), 0.0) << "gradient " << i;
  }
}

}  // namespace pudica::testing
