// Layers whose tape is easy to get wrong: every step of their menus, and all that it can give
// revoked, is bit-equal to a run without frames.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "torch/asking_twice.h"
#include "torch/frame.h"
#include "torch/meter.h"
#include "torch/registry.h"
#include "torch/tape_dispatch.h"
#include "torch/tape_operator.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// Gradients of a layer's function under each step of its menu, and with all that a tape can give
// revoked, against those without a frame.
void expect_tape_equals_plain(const hooks::FrameFunction& function,
                              const std::vector<at::Tensor>& parameters) {
  const at::Tensor input = at::randn({40, 64});
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  int passes = 1;
  const auto run = [&](bool taped, std::int32_t step, bool revoke) {
    at::manual_seed(7);
    for (at::Tensor parameter : parameters) parameter.mutable_grad() = at::Tensor();
    at::Tensor x = input.detach().clone().requires_grad_(true);
    const at::Tensor leaf = x;
    x = x * 1.0;
    const auto registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
    for (int layer = 0; layer < 3; ++layer) {
      if (!taped) {
        x = function({x})[0];
        continue;
      }
      auto frame = hooks::Frame::make({.registry = registry, .tapes = tapes, .menu_step = step});
      x = frame->run_part(function, {x}, {})[0];
      frame->finish();
    }
    if (revoke) registry->revoke(std::int64_t{1} << 40U);
    const at::Tensor loss = x.pow(2).mean();
    for (int pass = 1; pass <= passes; ++pass) {
      torch::autograd::backward({loss}, {}, /*retain_graph=*/pass < passes);
    }
    std::vector<at::Tensor> gradients{leaf.grad()};
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad().clone());
    return gradients;
  };
  for (int i = 0; i < 2; ++i) {
    SCOPED_TRACE("collected");
    expect_equal(run(false, 0, false), run(true, hooks::FrameOptions::kNoStep, false));
  }
  ASSERT_NE(tapes->menu(), nullptr);
  const auto steps = static_cast<std::int32_t>(tapes->menu()->steps.size());
  for (passes = 1; passes <= 2; ++passes) {
    const auto expected = run(false, 0, false);
    for (std::int32_t step = hooks::FrameOptions::kNoStep; step < steps; ++step) {
      SCOPED_TRACE(std::to_string(passes) + " backwards, step " + std::to_string(step));
      expect_equal(expected, run(true, step, false));
      expect_equal(expected, run(true, step, true));
    }
  }
}

std::vector<at::Tensor> random_weights(int count) {
  hooks::install_engine();
  hooks::cpu_meter();
  at::manual_seed(5);
  std::vector<at::Tensor> weights;
  for (int i = 0; i < count; ++i) {
    weights.push_back((at::randn({64, 64}) / 8.0).set_requires_grad(true));
  }
  return weights;
}

// Each between two linear maps, beside a residual connection.
using Body = std::function<at::Tensor(const at::Tensor&)>;
void expect_bodies_equal_plain(const std::vector<Body>& bodies) {
  const std::vector<at::Tensor> weights = random_weights(2);
  for (std::size_t k = 0; k < bodies.size(); ++k) {
    SCOPED_TRACE(k);
    expect_tape_equals_plain(
        [&](const std::vector<at::Tensor>& in) {
          const at::Tensor y = bodies[k](at::linear(in[0], weights[0]));
          return std::vector<at::Tensor>{in[0] + at::linear(y, weights[1])};
        },
        weights);
  }
}

// The backward of these wants what was there before they wrote.
TEST(TapeTraps, OperatorsThatOverwriteWhatTheirBackwardWants) {
  const std::vector<at::Tensor> weights = random_weights(3);
  const auto linear = [&](const at::Tensor& x, int i) {
    return at::linear(x, weights[static_cast<std::size_t>(i)]);
  };
  using Change = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  const std::vector<Change> changes{
      [](const at::Tensor& y, const at::Tensor& gate) { return y.mul_(gate.sigmoid()); },
      [](const at::Tensor& y, const at::Tensor& gate) { return y.div_(gate.exp() + 1.0); },
      [](const at::Tensor& y, const at::Tensor& gate) { return y.lerp_(gate.tanh(), gate.cos()); },
      [](const at::Tensor& y, const at::Tensor& gate) { return y.atan2_(gate.exp()); },
      [](const at::Tensor& y, const at::Tensor& gate) {
        return at::silu_(const_cast<at::Tensor&>(y)).mul_(gate).mul_(gate.tanh());
      },
      [](const at::Tensor& y, const at::Tensor& gate) {
        return y.mul_(gate.sigmoid()).add_(gate.tanh()).mul_(gate.cos());
      }};
  for (std::size_t k = 0; k < changes.size(); ++k) {
    SCOPED_TRACE(k);
    const Change& change = changes[k];
    expect_tape_equals_plain(
        [&](const std::vector<at::Tensor>& in) {
          const at::Tensor y = change(linear(in[0], 0), linear(in[0], 1));
          return std::vector<at::Tensor>{in[0] + at::linear(y.tanh(), weights[2])};
        },
        weights);
  }
}

// What an operator reads may have been written since another of its inputs was made of it: neither
// may be run with the other's version, in whatever order they are recovered.
TEST(TapeTraps, InputsMadeOfOlderVersionsOfOneAnother) {
  const std::vector<Body> bodies{
      [](const at::Tensor& y) {
        const at::Tensor b = y.exp();
        y.add_(1.0);
        return (y * b).tanh();
      },
      [](const at::Tensor& y) {
        const at::Tensor b = y.exp();
        y.add_(1.0);
        return (b * y).tanh();
      },
      [](const at::Tensor& h) {  // a gated unit on slices of one storage
        const at::Tensor gate = h.narrow(/*dim=*/-1, 32, 32).sigmoid();
        const at::Tensor value = h.narrow(/*dim=*/-1, 0, 32);
        value.mul_(.5);
        return (value * gate).repeat({1, 2}).tanh();
      },
      [](const at::Tensor& y) {  // each made of an older version of the other
        const at::Tensor z = y * .25;
        const at::Tensor before = z.exp();
        z.add_((y * .5).exp());
        y.add_(before);
        return (y * z * before).tanh();
      },
      [](const at::Tensor& y) {  // a copy of an older version is saved, and the last one
        y.clamp_(-1, 1);
        y.add_(std::get<0>(y.sort(-1)));
        y.tanh_();
        return at::maximum(y, y).tanh();
      },
      [](const at::Tensor& y) {  // what is written reads an older version of itself
        const at::Tensor b = y.exp();
        y.mul_(2.0);
        const at::Tensor c = y.tanh() + b;
        y.add_(c);
        return (y * c * b).tanh();
      }};
  expect_bodies_equal_plain(bodies);
}

// What is made of noise is saved before the noise itself: to try it out draws nothing.
TEST(TapeTraps, TheSearchDrawsNoRandomNumbers) {
  expect_bodies_equal_plain({[](const at::Tensor& y) {
    const at::Tensor noise = y.detach().clone().normal_();
    return (y * noise.exp()).tanh() * noise;
  }});
}

TEST(TapeTraps, ABackwardMayAskTwice) {
  const std::vector<Body> bodies{
      [](const at::Tensor& y) { return AskingTwice::apply(y.tanh(), y.sigmoid()); },
      [](const at::Tensor& y) { return AskingTwice::apply(y.sin() * 2.0, y.sigmoid() + 1.0); },
      [](const at::Tensor& y) { return AskingTwice::apply(y, y.exp()).tanh(); }};
  expect_bodies_equal_plain(bodies);
}

// What oneDNN makes for a backward it makes only where gradients are enabled, which they are not
// while a backward runs.
TEST(TapeTraps, RecurrentLayersAskWhetherGradientsAreEnabled) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "torch without oneDNN";
  std::vector<at::Tensor> weights = random_weights(1);
  for (const std::int64_t columns : {64, 64}) {
    weights.push_back((at::randn({4 * 64, columns}) / 8.0).set_requires_grad(true));
  }
  for (int i = 0; i < 2; ++i) {
    weights.push_back((at::randn({4 * 64}) / 8.0).set_requires_grad(true));
  }
  const at::Tensor zeros = at::zeros({1, 4, 64});
  expect_tape_equals_plain(
      [weights, zeros](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
        const at::Tensor x = at::matmul(in[0], weights[0]).reshape({10, 4, 64});
        const std::vector<at::Tensor> state{zeros, zeros};
        const std::vector<at::Tensor> own(weights.begin() + 1, weights.end());
        const at::Tensor y = std::get<0>(at::lstm(x, state, own, /*has_biases=*/true,
                                                  /*num_layers=*/1, /*dropout=*/0, /*train=*/true,
                                                  /*bidirectional=*/false, /*batch_first=*/false));
        return {at::layer_norm(in[0] + at::gelu(y.reshape({40, 64})), {64})};
      },
      weights);
}

// A CUDA device need not be asked whether a mask has two values where its operator says so.
TEST(TapeTraps, TruthValuesAreKnownByTheOperatorThatMadeThem) {
  if (!hooks::tape_available()) GTEST_SKIP() << "operators do not reach the tape here";
  const at::Tensor x = at::randn({4, 9});
  const at::Tensor bytes = at::full({4, 9}, 2, at::kByte);
  const auto contents_of = [](const std::function<at::Tensor()>& make) {
    hooks::Tape tape(at::kCPU, /*timed=*/false);
    at::Tensor made;
    {
      const hooks::TapeGuard guard(&tape);
      made = make();
    }
    return tape.stored()[static_cast<std::size_t>(tape.slot(made))].contents();
  };
  const auto known = hooks::Contents::kTruthValues;
  EXPECT_EQ(contents_of([&] { return std::get<1>(at::native_dropout(x, 0.1, true)); }), known);
  EXPECT_EQ(contents_of([&] { return x.gt(0); }), known);
  EXPECT_EQ(contents_of([&] { return bytes.to(at::kBool); }), known);
  const auto any = hooks::Contents::kAny;
  EXPECT_EQ(contents_of([&] { return bytes.view(at::kBool).clone(); }), any);
  EXPECT_EQ(contents_of([&] { return bytes.view(at::kBool); }), any);
  EXPECT_EQ(contents_of([&] { return at::empty_like(x, at::kBool); }), any);
  EXPECT_EQ(contents_of([&] { return x.mul(2); }), any);
  EXPECT_EQ(contents_of([&] { return x.gt(0).logical_or_(bytes.view(at::kBool)); }), any);
  const auto written_as_bytes = [&] {
    at::Tensor made = x.gt(0);
    made.view(at::kByte).copy_(bytes);
    return made;
  };
  EXPECT_EQ(contents_of(written_as_bytes), any);
}

// One of torch's own that says nothing of drawing; a stand-in, as it has none.
at::Tensor shaken(const at::Tensor& x) { return x + at::rand_like(x); }
TORCH_LIBRARY_FRAGMENT(aten, library) { library.def("pudica_test_shaken(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("pudica_test_shaken", shaken); }

// Below autograd: all that a layer makes, and nothing that it only looks at in another way.
TEST(TapeTraps, ViewsPassByUnseen) {
  const at::NoGradGuard no_grad;
  ASSERT_TRUE(hooks::tape_available());
  const at::Tensor x = at::arange(24, at::kFloat).reshape({2, 3, 4});
  const at::Tensor weight = at::ones({4, 4});
  hooks::Tape tape(c10::Device(c10::kCPU), /*timed=*/false);
  at::Tensor y;
  at::Tensor z;
  {
    const hooks::TapeGuard guard(&tape);
    const std::vector<at::Tensor> halves = x.transpose(0, 1).chunk(2, 2);
    y = halves[0].unsqueeze(0).select(0, 0).detach().exp();
    z = at::_unsafe_view(at::mm(x.view({6, 4}), weight.t()), {2, 3, 4}).expand({2, 3, 4});
    x.view({24}).slice(0, 0, 2).add_(1);           // a write through one is seen
    y = y.contiguous().to(at::kDouble).flatten();  // what may be a view and is none
  }
  std::vector<std::string> seen;
  for (const hooks::Tape::Entry& entry : tape.entries()) seen.push_back(entry.facts->name);
  EXPECT_THAT(seen, ::testing::ElementsAre("exp", "mm", "add_", "clone", "_to_copy"));
  EXPECT_EQ(tape.sequence().size(), seen.size() + 1);  // detach: autograd saves others behind it
  EXPECT_TRUE(at::equal(z, at::mm(at::arange(24, at::kFloat).view({6, 4}), weight).view_as(z)));
  EXPECT_EQ(y.dim(), 1);
}

// Generators are read around operators that torch tags. What draws all the same is seen where a
// call is searched, and known from then on.
TEST(TapeTraps, WhatDrawsIsKnownByItsTagOrAsItWasSeenTo) {
  if (!hooks::tape_available()) GTEST_SKIP() << "operators do not reach the tape here";
  const at::Tensor x = at::randn({4, 9});
  const auto draws = [](bool timed, const std::function<at::Tensor()>& run) {
    hooks::Tape tape(at::kCPU, timed);
    {
      const hooks::TapeGuard guard(&tape);
      run();
    }
    return tape.entries().back().random;
  };
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("aten::pudica_test_shaken", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  const auto untagged = [&] { return op.call(x); };
  for (const bool timed : {false, true}) {
    EXPECT_TRUE(draws(timed, [&] { return at::bernoulli(x.abs().clamp(0, 1)); }));
    EXPECT_TRUE(draws(timed, [&] { return std::get<0>(at::native_dropout(x, 0.1, true)); }));
    EXPECT_FALSE(draws(timed, [&] { return x.mul(2); }));
  }
  EXPECT_TRUE(draws(/*timed=*/true, untagged));
  EXPECT_TRUE(draws(/*timed=*/false, untagged));
}

// Noise that is one number while the layer is looked at (a gate that is still shut) has more values
// later: it would be planned as bits and stay as it is.
TEST(TapeTraps, OneValueIsNoEvidenceOfTwo) {
  hooks::cpu_meter();
  hooks::install_engine();
  const auto packed = [](double deviation, double mean = 0) {
    const auto tapes = std::make_shared<hooks::ClassTapes>();
    const at::Tensor x = at::randn({256, 256}).requires_grad_(true);
    const auto noisy = [&](const std::vector<at::Tensor>& in) {
      const at::Tensor noise = deviation < 0
                                   ? at::bernoulli(at::full_like(in[0].detach(), 0.5))
                                   : at::normal(at::full_like(in[0].detach(), mean), deviation);
      return std::vector<at::Tensor>{at::gelu(in[0] * noise)};
    };
    while (tapes->wants_collection()) {
      const auto frame = hooks::Frame::make({.tapes = tapes});
      const at::Tensor out = frame->run_part(noisy, {x * 1.0}, {})[0];
      frame->finish();
      torch::autograd::backward({out.sum()});
    }
    std::size_t count = 0;
    EXPECT_NE(tapes->menu(), nullptr);
    if (!tapes->menu()) return count;
    for (const auto& step : tapes->menu()->steps) count += step.packed.size();
    return count;
  };
  EXPECT_GT(packed(-1), 0U) << "as bits: zeros and ones";
  EXPECT_EQ(packed(1), 0U) << "many values";
  EXPECT_EQ(packed(0), 0U) << "zeros";
  EXPECT_EQ(packed(0, 1), 0U) << "ones";
}

}  // namespace
}  // namespace pudica::testing
