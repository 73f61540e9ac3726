// Results of operators held in layers that are run again: the same bits, and the operators that are
// named run once.
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

using ::testing::HasSubstr;

// Where the operator below really runs, answered ones aside.
int& halvings() {
  static int count = 0;
  return count;
}

at::Tensor halve(const at::Tensor& x) {
  ++halvings();
  return x * 0.5;
}

TORCH_LIBRARY_FRAGMENT(pudica_kept_test, library) { library.def("halve(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(pudica_kept_test, CPU, library) { library.impl("halve", halve); }

at::Tensor halved(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("pudica_kept_test::halve", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x.detach());
}

using Layer = std::function<at::Tensor(const at::Tensor&)>;

class KeptResultsTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kWidth = 32;

  KeptResultsTest() {
    hooks::install_engine();
    hooks::cpu_meter();
    at::manual_seed(3);
    for (int i = 0; i < 3; ++i) {
      weights_.push_back((at::randn({kWidth, kWidth}) / 4.0).set_requires_grad(true));
    }
    input_ = at::randn({64, kWidth});
  }

  struct Outcome {
    std::vector<at::Tensor> gradients;
    at::Tensor next_random;        // drawn behind the forward
    at::Tensor random_behind_all;  // and behind the backwards
    std::int64_t held_bytes = 0;   // by the layer, its input and output aside
  };

  // One step of one layer; `operators` empty: plain torch. `after_forward` is given the output.
  Outcome run(const Layer& layer, const std::vector<std::string>& operators,
              const std::function<void(at::Tensor&)>& after_forward = {}, int backwards = 1) {
    for (at::Tensor weight : weights_) weight.mutable_grad() = at::Tensor();
    at::manual_seed(9);
    const at::Tensor leaf = input_.clone().set_requires_grad(true);
    const at::Tensor x = leaf * 1.0;
    Outcome outcome;
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    at::Tensor out;
    if (operators.empty()) {
      out = layer(x);
    } else {
      hooks::FrameOptions options;
      options.store = false;
      options.keep_operators = std::make_shared<const std::vector<std::string>>(operators);
      auto frame = hooks::Frame::make(std::move(options));
      out = frame->run_part(
          [layer](const std::vector<at::Tensor>& in) {
            return std::vector<at::Tensor>{layer(in[0])};
          },
          {x}, {})[0];
      frame->finish();
    }
    outcome.held_bytes = hooks::cpu_meter().in_use_bytes() - before -
                         static_cast<std::int64_t>(out.storage().nbytes());
    outcome.next_random = at::rand({4});
    if (after_forward) after_forward(out);
    const at::Tensor loss = (out * out).sum();
    for (int i = 1; i <= backwards; ++i) {
      torch::autograd::backward({loss}, {}, /*retain_graph=*/i < backwards);
    }
    outcome.random_behind_all = at::rand({4});
    for (const at::Tensor& weight : weights_) {
      outcome.gradients.push_back(weight.grad().defined() ? weight.grad().clone() : at::Tensor());
    }
    outcome.gradients.push_back(leaf.grad().clone());
    return outcome;
  }

  static void expect_same(const Outcome& expected, const Outcome& seen) {
    ASSERT_EQ(expected.gradients.size(), seen.gradients.size());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      ASSERT_EQ(expected.gradients[i].defined(), seen.gradients[i].defined()) << i;
      if (!expected.gradients[i].defined()) continue;
      EXPECT_TRUE(at::equal(expected.gradients[i], seen.gradients[i])) << "gradient " << i;
    }
    EXPECT_TRUE(at::equal(expected.next_random, seen.next_random)) << "the generator's state";
    EXPECT_TRUE(at::equal(expected.random_behind_all, seen.random_behind_all)) << "and at last";
  }

  at::Tensor linear(const at::Tensor& x, std::size_t i) const { return at::mm(x, weights_[i]); }

  std::vector<at::Tensor> weights_;
  at::Tensor input_;
  at::Tensor side_;  // what a layer made and the user has
};

TEST_F(KeptResultsTest, ResultsOfWhatIsNamedAreHeldAndNothingElse) {
  const Layer layer = [this](const at::Tensor& x) {
    const at::Tensor a = at::gelu(linear(x, 0));
    return at::tanh(linear(at::dropout(linear(a, 1), 0.3, /*train=*/true), 2)).sin();
  };
  const Outcome expected = run(layer, {});
  const Outcome all_again = run(layer, {"no_such_operator"});
  const Outcome seen = run(layer, {"mm"});
  expect_same(expected, seen);
  expect_same(expected, all_again);
  EXPECT_EQ(seen.held_bytes - all_again.held_bytes, 3 * 64 * kWidth * 4);
  EXPECT_LT(seen.held_bytes, expected.held_bytes);
}

TEST_F(KeptResultsTest, WhatIsNamedRunsOnce) {
  const Layer layer = [this](const at::Tensor& x) {
    return at::gelu(linear(x * halved(x), 0)).sin();
  };
  const Outcome expected = run(layer, {});
  halvings() = 0;
  expect_same(expected, run(layer, {"mm"}));
  EXPECT_EQ(halvings(), 2);
  halvings() = 0;
  expect_same(expected, run(layer, {"pudica_kept_test::halve"}));
  EXPECT_EQ(halvings(), 1);
  // Answered as often as a retained graph asks.
  halvings() = 0;
  expect_same(run(layer, {}, {}, 2), run(layer, {"pudica_kept_test::*"}, {}, 2));
  EXPECT_EQ(halvings(), 2) << "one of plain torch, one under the frame";
}

TEST_F(KeptResultsTest, NamesOfOperatorsMayEndInAStar) {
  const Layer layer = [this](const at::Tensor& x) { return at::gelu(linear(x, 0)).sin(); };
  const Outcome none = run(layer, {"no_such_operator"});
  EXPECT_EQ(run(layer, {"ge*"}).held_bytes - none.held_bytes, 64 * kWidth * 4);
}

// A linear layer of three dimensions is a product to which its bias is added in place.
TEST_F(KeptResultsTest, AResultThatIsWrittenBeforeItIsReadIsHeldAsWritten) {
  const Layer layer = [this](const at::Tensor& x) {
    at::Tensor a = at::_unsafe_view(linear(x, 0), {8, 8, kWidth});
    a.add_(1.0).mul_(0.5);
    at::Tensor b = linear(at::gelu(a).view({64, kWidth}), 1);
    b.view({-1}).narrow(0, 0, 7).mul_(3.0);  // a part of it, through a view
    at::Tensor c = linear(at::silu(b), 2);
    c.detach().add_(0.5);  // unseen by autograd
    return at::tanh(c).exp();
  };
  const Outcome expected = run(layer, {});
  const Outcome none = run(layer, {"no_such_operator"});
  const Outcome seen = run(layer, {"mm"});
  expect_same(expected, seen);
  EXPECT_EQ(seen.held_bytes - none.held_bytes, 3 * 64 * kWidth * 4);
  expect_same(run(layer, {}, {}, 2), run(layer, {"mm"}, {}, 2));
}

TEST_F(KeptResultsTest, AResultThatIsWrittenOnceItWasReadIsMadeAgain) {
  const Layer layer = [this](const at::Tensor& x) {
    at::Tensor a = linear(x, 0);
    const at::Tensor early = at::sigmoid(a.detach());
    a.add_(1.0);
    at::Tensor b = linear(at::gelu(a) * early, 1);
    b.detach().mul_(b.detach());  // reads what it writes
    at::Tensor c = linear(at::silu(b), 2);
    c.detach().bernoulli_(0.5);  // draws what it writes
    return at::tanh(at::dropout(c, 0.3, /*train=*/true)).exp();
  };
  const Outcome expected = run(layer, {});
  const Outcome none = run(layer, {"no_such_operator"});
  const Outcome seen = run(layer, {"mm"});
  expect_same(expected, seen);
  EXPECT_EQ(seen.held_bytes, none.held_bytes);
}

// Another call in between may be another one in the rerun: under autocast, casts of a layer's
// input.
TEST_F(KeptResultsTest, AResultThatIsWrittenLaterThanAtOnceIsMadeAgain) {
  const Layer layer = [this](const at::Tensor& x) {
    at::Tensor a = linear(x, 0);
    const at::Tensor b = at::sigmoid(x);
    a.mul_(3.0);
    return at::tanh(a * b).exp();
  };
  const Outcome expected = run(layer, {});
  const Outcome seen = run(layer, {"mm"});
  expect_same(expected, seen);
  EXPECT_EQ(seen.held_bytes, run(layer, {"no_such_operator"}).held_bytes);
}

TEST_F(KeptResultsTest, AResultThatIsTurnedInPlaceIsMadeAgain) {
  const Layer layer = [this](const at::Tensor& x) {
    at::Tensor a = linear(x, 0).view({8, 8, kWidth});
    a.transpose_(0, 1);
    at::Tensor b = linear(at::gelu(a).reshape({64, kWidth}), 1);
    b.unsqueeze_(0);
    return at::tanh(b).exp();
  };
  const Outcome expected = run(layer, {});
  expect_same(expected, run(layer, {"mm"}));
  expect_same(run(layer, {}, {}, 2), run(layer, {"mm"}, {}, 2));
}

// As kernels of the user's own do, which say so to autograd.
TEST_F(KeptResultsTest, AResultThatIsWrittenUnseenIsMadeAgain) {
  const Layer layer = [this](const at::Tensor& x) {
    const at::Tensor a = linear(x, 0);
    const std::span<float> bytes(a.mutable_data_ptr<float>(), static_cast<std::size_t>(a.numel()));
    for (float& value : bytes) value *= 3;
    torch::autograd::impl::bump_version(a);
    return at::tanh(a).exp();
  };
  expect_same(run(layer, {}), run(layer, {"mm"}));
}

TEST_F(KeptResultsTest, ABackwardInsideTheLayerRunsItAgainUnanswered) {
  const Layer layer = [this](const at::Tensor& x) {
    const at::Tensor a = linear(x, 0).sin();
    const at::Tensor slope =
        torch::autograd::grad({a.cos().sum()}, {x}, {}, /*retain_graph=*/true)[0];
    return at::tanh(linear(a, 1) * slope.detach()).exp();
  };
  expect_same(run(layer, {}), run(layer, {"mm"}));
}

TEST_F(KeptResultsTest, AnOutputThatTheUserWritesIsMadeAgain) {
  // The layer returns the result of a product that its own backward needs again.
  const Layer layer = [this](const at::Tensor& x) {
    const at::Tensor product = linear(x, 0);
    side_ = product;
    return at::gelu(product);
  };
  const auto write = [this](at::Tensor&) {
    side_.detach().mul_(2.0);
    side_ = at::Tensor();
  };
  // Plain torch would refuse, since the saved tensor was written; a layer that is run again need
  // not.
  const Outcome expected = run(layer, {});
  expect_same(expected, run(layer, {"mm"}, write));
}

TEST_F(KeptResultsTest, WhatIsNamedAndDrawsRandomNumbersLeavesTheGeneratorAsItDid) {
  const Layer layer = [this](const at::Tensor& x) {
    const at::Tensor noise = at::rand_like(linear(x, 0));
    const at::Tensor mixed = at::gelu(linear(x, 0) * noise);
    return at::dropout(linear(mixed, 1), 0.4, /*train=*/true).sin();
  };
  const Outcome expected = run(layer, {});
  expect_same(expected, run(layer, {"rand_like", "mm"}));
}

TEST_F(KeptResultsTest, ARetainedGraphIsRunBackwardTwice) {
  const Layer layer = [this](const at::Tensor& x) {
    return at::tanh(linear(at::gelu(linear(x, 0)), 1)).sin();
  };
  expect_same(run(layer, {}, {}, 2), run(layer, {"mm"}, {}, 2));
}

// A run that does something else is answered nothing: the frame finds out by what it saves.
TEST_F(KeptResultsTest, ALayerThatDeviatesIsNotAnsweredWithAnotherCallsResult) {
  int calls = 0;
  const Layer layer = [this, &calls](const at::Tensor& x) {
    const at::Tensor a = ++calls == 1 ? x.sin() : x.cos();  // which save alike
    return at::gelu(linear(a, 0)).exp();
  };
  const Outcome unaided = run(layer, {"no_such_operator"});
  calls = 0;
  expect_same(unaided, run(layer, {"mm"}));
}

// Autocast's cache spares the casts of weights in one run and not in the other.
TEST_F(KeptResultsTest, CastsOfWeightsAreNeitherHeldNorCounted) {
  const Layer layer = [this](const at::Tensor& x) {
    const Autocast autocast(true);
    return at::gelu(linear(at::gelu(linear(x, 0)), 1)).to(at::kFloat).sin();
  };
  const Outcome none = run(layer, {"no_such_operator"});
  const Outcome seen = run(layer, {"mm", "_to_copy"});
  expect_same(run(layer, {}), seen);
  // Two products, the cast of the input and of the output.
  EXPECT_EQ(seen.held_bytes - none.held_bytes, 64 * kWidth * (2 + 2 + 2 + 4));
}

TEST_F(KeptResultsTest, ALayerThatThrowsHoldsNothing) {
  const std::int64_t before = hooks::cpu_meter().in_use_bytes();
  const Layer layer = [this](const at::Tensor& x) -> at::Tensor {
    const at::Tensor product = linear(x, 0);
    throw std::runtime_error("in the middle");
  };
  EXPECT_THROW(run(layer, {"mm"}), std::runtime_error);
  EXPECT_EQ(hooks::cpu_meter().in_use_bytes(), before);
}

// The policy's list reaches the frames of an attached model, and those of mode `full` alone.
class KeptOperators : public SessionTest {
 protected:
  class Policy final : public pudica::Policy {
   public:
    Policy(std::vector<std::string> names, Mode mode) : names_(std::move(names)), mode_(mode) {}
    [[nodiscard]] std::string name() const override { return "keeping"; }
    void on_structure(const StepStructure& /*structure*/) override {}
    [[nodiscard]] std::vector<std::string> keep_operators() const override { return names_; }
    StepDecision begin_step(const StepContext& /*context*/) override {
      Plan plan;
      plan.id = 1;
      plan.default_mode = mode_;
      return {std::make_shared<const Plan>(std::move(plan))};
    }
    void end_step(const StepOutcome& /*outcome*/) override {}

   private:
    std::vector<std::string> names_;
    Mode mode_;
  };

  std::unique_ptr<Handle> attach_keeping(std::vector<std::string> names, Mode mode) {
    AttachOptions options;
    options.policy = std::make_shared<Policy>(std::move(names), mode);
    options.parameters = model_->parameters();
    auto handle = attach(std::move(options));
    EXPECT_TRUE(handle.has_value());
    return std::move(*handle);
  }

  // Above what is live when a step begins.
  std::int64_t peak_of(std::vector<std::string> names, Mode mode) {
    const auto handle = attach_keeping(std::move(names), mode);
    constexpr std::int64_t kLength = 256;  // so that activations outweigh gradients
    gradients_.clear();
    for (int step = 0; step < 2; ++step) gradients_ = train_step(*handle, kLength);
    EXPECT_EQ(handle->failures(), 0);
    return (report_.peak_bytes - report_.base_bytes).count();
  }

  std::vector<at::Tensor> gradients_;
};

TEST_F(KeptOperators, OfThePolicyAreHeldInLayersThatRunAgain) {
  const std::int64_t keep = peak_of({}, Mode::keep());
  const std::vector<at::Tensor> expected = gradients_;
  const std::int64_t full = peak_of({}, Mode::full());
  expect_equal(expected, gradients_);
  const std::int64_t held = peak_of({"addmm", "mm", "_scaled_dot_product_*"}, Mode::full());
  expect_equal(expected, gradients_);
  EXPECT_GT(held, full);
  EXPECT_LT(held, keep);
  EXPECT_EQ(peak_of({"addmm"}, Mode::keep()), keep);
}

TEST_F(KeptOperators, ThatTorchDoesNotKnowAreRefused) {
  AttachOptions options;
  options.policy =
      std::make_shared<Policy>(std::vector<std::string>{"addmm", "adm_m"}, Mode::full());
  const auto handle = attach(std::move(options));
  ASSERT_FALSE(handle.has_value());
  EXPECT_EQ(handle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(handle.error().message, HasSubstr("policy 'keeping'"));
  EXPECT_THAT(handle.error().message, HasSubstr("'adm_m'"));
}

}  // namespace
}  // namespace pudica::testing
