// Layers entered and left by hooks, and the trial of classes that nobody vouches for.
#include <stdexcept>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pudica/torch.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

class FixedPolicy final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "fixed"; }
  void on_structure(const StepStructure& /*structure*/) override {}
  StepDecision begin_step(const StepContext& /*context*/) override {
    return {std::make_shared<const Plan>(plan), record};
  }
  void end_step(const StepOutcome& outcome) override { last = outcome; }

  Plan plan;
  bool record = false;
  StepOutcome last;
};

class LayerHalvesTest : public ::testing::Test {
 protected:
  LayerHalvesTest() : policy_(std::make_shared<FixedPolicy>()) {
    install_meter();
    model_ = std::make_unique<ToyModel>(ToyOptions{.layers = 4});
    attach_with(Bytes(0));
  }

  void attach_with(Bytes budget) {
    handle_.reset();
    AttachOptions options;
    options.policy = policy_;
    options.parameters = model_->parameters();
    options.budget_bytes = budget;
    options.enforcement = Enforcement::kSoft;
    options.clock = operator_clock();
    handle_ = std::move(*attach(std::move(options)));
  }

  // What hooks around the layers do. When layer 2 is run again, `twist` is added to its input and
  // `shift` to its output.
  std::vector<at::Tensor> train_step(bool unproven, double twist = 0, double shift = 0) {
    model_->clear_gradients();
    at::manual_seed(3);
    handle_->begin_step(ShapeKey{2, 16});
    at::Tensor x = at::randn({2, 16, 32}).requires_grad_(true) * 1.0;
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      if (i == left_out_) continue;
      const auto layer = model_->layers[i];
      const std::string shared = i == 2 ? "odd" : "even";
      const LayerOptions options{each_its_own_ ? std::to_string(i) : shared, {}, unproven};
      const bool twisted = i == 2 && twist != 0;
      const bool shifted = i == 2 && shift != 0;
      const LayerFunction rerun = [=, this](const std::vector<at::Tensor>& inputs) {
        ++reruns_;
        const at::Tensor y = layer->forward(twisted ? inputs[0] + twist : inputs[0]);
        return std::vector<at::Tensor>{shifted ? y + shift : y};
      };
      const bool entered = handle_->enter_layer(rerun, {x}, options);
      entered_ += entered ? 1 : 0;
      at::Tensor y = layer->forward(x);
      if (entered) handle_->leave_layer({y});
      x = y;
    }
    torch::autograd::backward({x.pow(2).mean()});
    report_ = handle_->end_step();
    std::vector<at::Tensor> gradients;
    for (const auto& p : model_->parameters()) {
      if (p.grad().defined()) gradients.push_back(p.grad().clone());
    }
    return gradients;
  }

  // A step of one layer, of a class that nobody vouches for.
  void train_unproven(const LayerFunction& function, const at::Tensor& x) {
    handle_->begin_step(ShapeKey{1, 4});
    LayerOptions options;
    options.unproven = true;
    ASSERT_TRUE(handle_->enter_layer(function, {x}, options));
    const at::Tensor y = function({x})[0];
    handle_->leave_layer({y});
    torch::autograd::backward({y.sum()});
    report_ = handle_->end_step();
  }

  std::shared_ptr<FixedPolicy> policy_;
  std::unique_ptr<ToyModel> model_;
  std::unique_ptr<Handle> handle_;
  StepReport report_;
  std::size_t left_out_ = SIZE_MAX;
  bool each_its_own_ = false;  // class, that is
  int reruns_ = 0;
  int entered_ = 0;
};

TEST_F(LayerHalvesTest, GivesTheGradientsOfThePlainModel) {
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  EXPECT_EQ(entered_, 4);
  EXPECT_EQ(reruns_, 0);
  policy_->plan.modes = {Mode::full(), Mode::keep(), Mode::full(), Mode::full()};
  policy_->plan.joined = {0, 0, 0, 1};
  expect_equal(expected, train_step(false));
  EXPECT_EQ(reruns_, 3);
  EXPECT_EQ(report_.recomputed_layers, 2) << "the joint segment counts once";
}

TEST_F(LayerHalvesTest, ALayerLeftByAnExceptionHarmsNoLaterStep) {
  policy_->plan.default_mode = Mode::full();
  const auto expected = train_step(false);
  handle_->begin_step(ShapeKey{2, 16});
  const at::Tensor x = at::randn({2, 16, 32}).requires_grad_(true) * 1.0;
  ASSERT_TRUE(handle_->enter_layer([](const auto& in) { return in; }, {x}, {}));
  EXPECT_FALSE(handle_->enter_layer([](const auto& in) { return in; }, {x}, {})) << "nested";
  expect_equal(expected, train_step(false));
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, LeavingWhatWasNotEnteredIsHarmless) {
  handle_->leave_layer({});
  handle_->abandon_layers();
  EXPECT_FALSE(handle_->enter_layer([](const auto& in) { return in; }, {at::ones({1})}, {}))
      << "outside a step";
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, AClassIsTriedOnceBeforeAnyOfItsLayersMustReproduceItself) {
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  policy_->plan.default_mode = Mode::full();
  expect_equal(expected, train_step(true));
  EXPECT_EQ(reruns_, 4) << "the first call of both classes at once, the others as planned";
  EXPECT_EQ(report_.recomputed_layers, 2);
  reruns_ = 0;
  expect_equal(expected, train_step(true));
  EXPECT_EQ(reruns_, 4);
  EXPECT_EQ(report_.recomputed_layers, 4);
}

TEST_F(LayerHalvesTest, AClassThatFailsItsTrialIsKeptAndTheGradientsAreRight) {
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  policy_->plan.default_mode = Mode::full();
  expect_equal(expected, train_step(true, 1e-3));
  reruns_ = 0;
  expect_equal(expected, train_step(true, 1e-3));
  EXPECT_EQ(reruns_, 3) << "the class of layer 2 is quarantined";
  EXPECT_EQ(report_.recomputed_layers, 3);
  EXPECT_EQ(handle_->failures(), 0);
}

// Its saved tensors are the same; a joint segment would hand its output to the next layer.
TEST_F(LayerHalvesTest, AnOutputThatIsNotReproducedFailsTheTrialToo) {
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  policy_->plan.default_mode = Mode::full();
  policy_->plan.joined = {0, 1, 1, 1};
  policy_->plan.modes.assign(4, Mode::full());
  expect_equal(expected, train_step(true, 0, 1e-3));
  expect_equal(expected, train_step(true, 0, 1e-3));
  expect_equal(expected, train_step(true, 0, 1e-3));
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, ATrialTeachesNothingOfItsLayer) {
  policy_->record = true;
  train_step(true);
  for (const auto& segment : policy_->last.segments) {
    EXPECT_FALSE(segment.key.kind == SegmentKind::kForward && segment.layer == 0);
    EXPECT_FALSE(segment.key.kind == SegmentKind::kBackward && segment.layer == 2);
  }
  EXPECT_FALSE(policy_->last.segments.empty());
}

TEST_F(LayerHalvesTest, AJointSegmentHoldsWithAnyOfItsLayersLeftOut) {
  for (left_out_ = 0; left_out_ < 4; ++left_out_) {
    policy_->plan = Plan{};
    policy_->plan.revocable = false;
    const auto expected = train_step(false);
    policy_->plan.modes.assign(4, Mode::full());
    policy_->plan.joined = {0, 1, 1, 1};
    policy_->plan.layer_classes = {0, 0, 1, 0};
    expect_equal(expected, train_step(false));
    EXPECT_EQ(handle_->failures(), 0);
  }
}

TEST_F(LayerHalvesTest, WhatHasPassedItsTrialCanBeRevokedInTheSameStep) {
  each_its_own_ = true;
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  train_step(false);  // with `expected` in its base
  const Bytes range = report_.peak_bytes - report_.base_bytes;
  policy_->plan.revocable = true;
  attach_with(report_.base_bytes + Bytes(range.count() * 9 / 10));
  expect_equal(expected, train_step(true));
  EXPECT_GT(report_.revocations, 0);
  EXPECT_FALSE(report_.overrun) << report_.peak_bytes.count() << " of "
                                << report_.budget_bytes.count();
}

TEST_F(LayerHalvesTest, WhatHasNotPassedItsTrialIsNotRevoked) {
  each_its_own_ = true;
  policy_->plan.revocable = false;
  const auto expected = train_step(false);
  policy_->plan.revocable = true;
  attach_with(report_.base_bytes + Bytes(1));
  expect_equal(expected, train_step(true, 0, 1e-3));
  expect_equal(expected, train_step(true, 0, 1e-3));
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, AClassThatChangesItsArgumentsIsKept) {
  policy_->plan.default_mode = Mode::full();
  const at::Tensor weight = at::ones({4}).requires_grad_(true);
  const LayerFunction function = [weight](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0].mul_(2) * weight};
  };
  for (int step = 0; step < 2; ++step) train_unproven(function, at::ones({4}));
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4}, 4.0)));
  EXPECT_EQ(handle_->failures(), 0);
}

// Saves a tensor that it writes half of, as fused attention does; the backward reads that half.
class HalfWritten final : public torch::autograd::Function<HalfWritten> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::full({64}, ++runs_, at::kLong);  // what lies there when the block is used again
    const at::Tensor saved = at::empty({64}, at::kLong);
    saved.narrow(0, 0, 32).fill_(2);
    context->save_for_backward({saved});
    return 2 * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * context->get_saved_variables()[0][0]};
  }

 private:
  static inline std::int64_t runs_ = 0;
};

TEST_F(LayerHalvesTest, AClassThatSavesWhatNobodyWroteReproducesItself) {
  policy_->plan.default_mode = Mode::full();
  const LayerFunction function = [](const std::vector<at::Tensor>& in) {
    return std::vector{HalfWritten::apply(in[0])};
  };
  for (int step = 0; step < 3; ++step) {
    train_unproven(function, at::ones({4}).requires_grad_(true) * 1.0);
  }
  EXPECT_EQ(report_.recomputed_layers, 1) << "the class is proven";
  EXPECT_EQ(handle_->failures(), 0);
}

// As Ctrl-C in another language: neither a failure of the layer's nor one of pudica's.
struct Struck {};

// Saves its input, six results that nobody else holds, and the last one, which it returns.
std::vector<at::Tensor> eight_operators(const std::vector<at::Tensor>& inputs) {
  at::Tensor x = inputs[0];
  for (int i = 0; i < 7; ++i) x = x.sin();
  return {x.exp()};
}

// And holds each of them until it ends.
std::vector<at::Tensor> eight_held_operators(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> all = inputs;
  for (int i = 0; i < 7; ++i) all.push_back(all.back().sin());
  return {all.back().exp()};
}

class TrialTest : public LayerHalvesTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Capped, TrialTest, ::testing::Bool());

TEST_P(TrialTest, NeverHoldsTwiceWhatTheLayerSaves) {
  constexpr std::int64_t kTensor = std::int64_t{1} << 20U;
  policy_->plan.default_mode = Mode::keep();
  std::vector<std::int64_t> held;
  std::vector<at::Tensor> gradients;
  const at::Tensor input = at::rand({kTensor / 4}).requires_grad_(true);
  // With a cap the forward's give way as the rerun's come, without one only the rerun's go.
  const auto layer = GetParam() ? eight_held_operators : eight_operators;
  handle_->set_budget(GetParam() ? Bytes(hooks::cpu_meter().in_use_bytes() + 13 * kTensor)
                                 : Bytes(0));
  for (const bool trial : {true, false}) {
    handle_->begin_step(ShapeKey{1, 4});
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    LayerOptions options;
    options.unproven = true;
    at::Tensor y;
    {
      const at::Tensor x = input * 1.0;
      ASSERT_TRUE(handle_->enter_layer(layer, {x}, options));
      y = layer({x})[0];
      handle_->leave_layer({y});
    }
    held.push_back(hooks::cpu_meter().in_use_bytes() - before);
    const std::int64_t peak = hooks::cpu_meter().peak_bytes() - before;
    EXPECT_LE(peak, held.back() + (trial ? 3 * kTensor : kTensor)) << trial;
    gradients.push_back(torch::autograd::grad({y.sum()}, {input})[0]);
    y = at::Tensor();
    handle_->end_step();
  }
  EXPECT_EQ(held[0], held[1]) << "what others hold stays theirs, and is not held twice";
  EXPECT_EQ(held[1], 8 * kTensor);
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

// Autograd's versions do not see what is written through a tensor's data.
TEST_F(LayerHalvesTest, ATrialWritesNothingThatTheLayerDidNotMake) {
  for (const bool input : {false, true}) {
    const at::Tensor mean = at::zeros({4});
    const LayerFunction layer = [&](const auto& in) {
      protect_in_trial({mean});
      const at::Tensor made = in[0].exp();
      made.tensor_data().mul_(2);
      (input ? in[0] : mean).tensor_data().add_(1);
      return std::vector{made * mean};
    };
    handle_->begin_step(ShapeKey{1, 4});
    const at::Tensor x = at::ones({4}).requires_grad_(true) * 1.0;
    LayerOptions options;
    options.unproven = true;
    options.layer_class = input ? "of its input" : "of what it keeps";
    ASSERT_TRUE(handle_->enter_layer(layer, {x}, options));
    const at::Tensor y = layer({x})[0];
    handle_->leave_layer({y});
    EXPECT_TRUE(at::equal(mean, at::full({4}, input ? 0 : 1)));
    EXPECT_TRUE(at::equal(x.detach(), at::full({4}, input ? 2 : 1)));
    handle_->end_step();
  }
}

LayerFunction struck_from(const LayerFunction& function, bool after) {
  return [=](const std::vector<at::Tensor>& inputs) -> std::vector<at::Tensor> {
    try {
      if (after) function(inputs);
    } catch (...) {  // NOLINT(bugprone-empty-catch) the stop of a recompute that has all it needs
    }
    throw Interruption(std::make_exception_ptr(Struck()));
  };
}

TEST_F(LayerHalvesTest, WhatInterruptsATrialComesOutAndTheClassIsTriedAgain) {
  policy_->plan.default_mode = Mode::full();
  const LayerFunction function = [](const auto& in) { return std::vector{in[0].exp().sin()}; };
  LayerOptions options;
  options.unproven = true;
  for (const bool struck : {true, true, false, false}) {
    handle_->begin_step(ShapeKey{1, 4});
    const at::Tensor x = at::ones({4}).requires_grad_(true) * 1.0;
    const LayerFunction rerun = struck ? struck_from(function, false) : function;
    ASSERT_TRUE(handle_->enter_layer(rerun, {x}, options));
    const at::Tensor y = function({x})[0];
    if (struck) {
      EXPECT_THROW(handle_->leave_layer({y}), Struck);
    } else {
      EXPECT_NO_THROW(handle_->leave_layer({y}));
    }
    torch::autograd::backward({y.sum()});
    report_ = handle_->end_step();
  }
  EXPECT_EQ(report_.recomputed_layers, 1) << "the class is proven";
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, WhatInterruptsARecomputeComesOutOfTheBackward) {
  policy_->plan.default_mode = Mode::full();
  const LayerFunction function = [](const auto& in) { return std::vector{in[0].exp().sin()}; };
  for (const bool after : {false, true}) {
    handle_->begin_step(ShapeKey{1, 4});
    const at::Tensor x = at::ones({4}).requires_grad_(true) * 1.0;
    ASSERT_TRUE(handle_->enter_layer(struck_from(function, after), {x}, {}));
    const at::Tensor y = function({x})[0];
    handle_->leave_layer({y});
    EXPECT_THROW(torch::autograd::backward({y.sum()}), Struck) << after;
    const auto gradients = train_step(false);
    expect_equal(gradients, train_step(false));
  }
  EXPECT_EQ(handle_->failures(), 0);
}

TEST_F(LayerHalvesTest, WhatTheUserHeldFromTheStepBeforeIsNoPartOfASegment) {
  policy_->plan.revocable = false;
  policy_->record = true;
  at::Tensor held;
  std::vector<std::vector<std::int64_t>> heads;
  std::vector<Bytes> bases;
  for (const std::int64_t size : {100, 200, 300, 400}) {
    handle_->begin_step(ShapeKey{1, 4});
    at::Tensor x = at::ones({4}).requires_grad_(true) * 1.0;
    ASSERT_TRUE(handle_->enter_layer([](const auto& in) { return in; }, {x}, {}));
    const at::Tensor y = x.exp();
    handle_->leave_layer({y});
    held = at::ones({size * 16});  // the one before goes, in this step's head
    torch::autograd::backward({y.sum()});
    bases.push_back(handle_->end_step().base_bytes);
    for (const auto& segment : policy_->last.segments) {
      if (segment.key.kind == SegmentKind::kHead) heads.push_back(segment.sample.deltas);
    }
  }
  ASSERT_EQ(heads.size(), 4U);
  for (std::size_t i = 1; i < heads.size(); ++i) {
    ASSERT_EQ(heads[i].size(), heads[0].size()) << "the free of what was held is not recorded";
  }
  EXPECT_EQ(bases[1] - bases[0], Bytes(100 * 64)) << "not known yet to come back";
  EXPECT_EQ(bases[3], bases[0]) << "the step before showed that it does";
}

// A backward inside a layer runs another model's layer again, and that begins a step of the first.
TEST_F(LayerHalvesTest, AStepThatBeginsInARecomputeInsideALayerAbandonsTheLayerAlone) {
  policy_->plan.modes.assign(1, Mode::full());
  AttachOptions options;
  options.policy = policy_;
  const auto other = std::move(*attach(std::move(options)));
  const at::Tensor inner = at::ones({4}).requires_grad_(true);
  const at::Tensor outer = at::ones({4}).requires_grad_(true);
  int runs = 0;
  other->begin_step(ShapeKey{1, 4});
  const auto recomputed = [this, &runs](const at::Tensor& x) {
    if (++runs == 2) handle_->begin_step(ShapeKey{1, 4});
    return x.sin().exp();
  };
  const at::Tensor loss = other->layer(0, recomputed, inner).sum();
  handle_->begin_step(ShapeKey{1, 4});
  const auto around = [&](const at::Tensor& x) {
    const at::Tensor y = x.exp();
    torch::autograd::backward({loss});
    return y.sin();
  };
  torch::autograd::backward({handle_->layer(0, around, outer).sum()});
  EXPECT_EQ(runs, 2);
  const at::Tensor x = at::ones({4});
  EXPECT_TRUE(at::equal(inner.grad(), x.sin().exp() * x.cos()));
  EXPECT_TRUE(at::equal(outer.grad(), x.exp().cos() * x.exp()));
  EXPECT_EQ(handle_->failures() + other->failures(), 0);
}

}  // namespace
}  // namespace pudica::testing
