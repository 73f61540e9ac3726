// Selective modes by operator tape: every drop gives bit-equal gradients, and gives memory back.
#include <algorithm>
#include <tuple>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/recorder.h"
#include "torch/tape_dispatch.h"
#include "torch/tape_operator.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// attention, bf16 autocast, pre-norm, activations in place
using Case = std::tuple<Attention, bool, bool, bool>;

class TapeParity : public ::testing::TestWithParam<Case> {
 protected:
  TapeParity() : tapes_(std::make_shared<hooks::ClassTapes>()) {
    hooks::cpu_meter();
    ToyOptions options;
    options.hidden = 64;
    std::tie(options.attention, options.autocast_bf16, options.pre_norm, options.in_place) =
        GetParam();
    model_ = std::make_unique<ToyModel>(options);
    input_ = at::randn({3, 17, options.hidden});
  }

  StepResult run(std::vector<Treatment> treatments, int backward_passes = 1) {
    StepPlan plan;
    plan.treatments = std::move(treatments);
    plan.backward_passes = backward_passes;
    plan.tapes = tapes_;
    return run_step(*model_, input_, plan);
  }
  // The first tape calls collect and drop nothing.
  void collect() {
    run({Treatment::kTapeKeep});
    ASSERT_NE(tapes_->menu(), nullptr);
  }

  std::shared_ptr<hooks::ClassTapes> tapes_;
  std::unique_ptr<ToyModel> model_;
  at::Tensor input_;
};

TEST_P(TapeParity, CollectingCallsAreThePlainOnes) {
  const StepResult expected = run({Treatment::kPlain});
  expect_identical(expected, run({Treatment::kTapeKeep}));
  expect_identical(expected, run({Treatment::kTapeKeep}));
}

TEST_P(TapeParity, EveryTreatmentIsBitEqual) {
  collect();
  const StepResult expected = run({Treatment::kPlain});
  for (const Treatment treatment :
       {Treatment::kTapeKeep, Treatment::kTapeFirst, Treatment::kTapeMiddle, Treatment::kTapeLast,
        Treatment::kTapeRevokedSome, Treatment::kTapeRevokedAll, Treatment::kTapeRevokedWhole,
        Treatment::kTapeMiddleRevokedWhole, Treatment::kTapeNested}) {
    SCOPED_TRACE(static_cast<int>(treatment));
    expect_identical(expected, run({treatment}));
  }
}

TEST_P(TapeParity, BetweenTheBackwardsOfARetainedGraphAllOfItCanGo) {
  collect();
  const StepResult expected = run({Treatment::kPlain}, /*backward_passes=*/2);
  const auto freed_by = [&](Treatment treatment) {
    StepPlan plan;
    plan.treatments = {treatment};
    plan.tapes = tapes_;
    plan.registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
    plan.backward_passes = 2;
    std::int64_t freed = 0;
    plan.after_backward = [&] {
      const std::int64_t before = hooks::cpu_meter().in_use_bytes();
      plan.registry->revoke(std::int64_t{1} << 40U);
      freed = before - hooks::cpu_meter().in_use_bytes();
    };
    expect_identical(expected, run_step(*model_, input_, plan));
    return freed;
  };
  EXPECT_EQ(freed_by(Treatment::kTapeKeep), freed_by(Treatment::kKeep));
}

// A layer kept with a tape, so that it can be revoked bit by bit, allocates and frees in the order
// of one kept without: what is measured of the one is true of the other.
TEST_P(TapeParity, KeepByTapeAllocatesAndFreesAsKeep) {
  at::set_num_threads(1);  // workers of one operator allocate in any order
  collect();
  hooks::Recorder recorder(std::size_t{1} << 16U);
  const auto events_of = [&](Treatment treatment) {
    recorder.clear();
    hooks::cpu_meter().set_recorder(&recorder);
    run({treatment});
    hooks::cpu_meter().set_recorder(nullptr);
    recorder.mark(hooks::MarkKind::kStepEnd, -1);
    const auto events = recorder.events(0, recorder.marks().back().event);
    return std::vector<std::int64_t>(events.begin(), events.end());
  };
  const auto kept = events_of(Treatment::kKeep);
  EXPECT_GT(kept.size(), 100U);
  const auto taped = events_of(Treatment::kTapeKeep);
  ASSERT_EQ(kept.size(), taped.size());
  const auto [ours, theirs] = std::ranges::mismatch(taped, kept);
  EXPECT_TRUE(ours == taped.end()) << "event " << ours - taped.begin() << ": " << *ours
                                   << " bytes, " << *theirs << " without a tape";
}

// What a class may drop does not depend on a clock, nor on the shape where all grows alike.
TEST_P(TapeParity, TheMenuIsFoundAgain) {
  const bool flash = std::get<0>(GetParam()) == Attention::kFlash;
  collect();
  const auto first = tapes_->menu();
  for (const auto& [batch, length] : {std::pair{3, 17}, std::pair{2, 64}, std::pair{6, 41}}) {
    if (!flash && length != 17) continue;  // probabilities are saved: they grow with the square
    tapes_ = std::make_shared<hooks::ClassTapes>();
    input_ = at::randn({batch, length, model_->options.hidden});
    collect();
    const auto menu = tapes_->menu();
    EXPECT_EQ(menu->id, first->id) << batch << 'x' << length;
    EXPECT_EQ(menu->order, first->order) << batch << 'x' << length;
    ASSERT_EQ(menu->steps.size(), first->steps.size());
    for (std::size_t k = 0; k < menu->steps.size(); ++k) {
      EXPECT_EQ(menu->steps[k].dropped, first->steps[k].dropped);
      EXPECT_EQ(menu->steps[k].operators, first->steps[k].operators);
    }
  }
  EXPECT_GT(first->id, hooks::ClassMenu::kNone);
}

TEST_P(TapeParity, MixedWithTheOtherModes) {
  collect();
  const StepResult expected = run({Treatment::kPlain});
  expect_identical(expected, run({Treatment::kTapeLast, Treatment::kFull, Treatment::kPlain,
                                  Treatment::kTapeMiddle}));
  expect_identical(expected, run({Treatment::kRevoked, Treatment::kTapeLast,
                                  Treatment::kTapeRevokedAll, Treatment::kTapeFirst}));
  expect_identical(expected, run({Treatment::kTapeRevokedWhole, Treatment::kTapeLast,
                                  Treatment::kTapeMiddleRevokedWhole, Treatment::kFull}));
}

TEST_P(TapeParity, RetainedGraphThreePasses) {
  collect();
  const StepResult expected = run({Treatment::kPlain}, 3);
  for (const Treatment treatment :
       {Treatment::kTapeKeep, Treatment::kTapeMiddle, Treatment::kTapeLast,
        Treatment::kTapeRevokedAll, Treatment::kTapeRevokedWhole}) {
    SCOPED_TRACE(static_cast<int>(treatment));
    expect_identical(expected, run({treatment}, 3));
  }
}

TEST_P(TapeParity, OtherShapesOfTheClass) {
  collect();
  for (const auto& [batch, length] : {std::pair{2, 5}, std::pair{5, 40}, std::pair{7, 33}}) {
    input_ = at::randn({batch, length, model_->options.hidden});
    const StepResult expected = run({Treatment::kPlain});
    for (const Treatment treatment : {Treatment::kTapeMiddle, Treatment::kTapeLast}) {
      expect_identical(expected, run({treatment}));
    }
  }
}

TEST_P(TapeParity, RevokedInMidBackward) {
  collect();
  const StepResult expected = run({Treatment::kPlain});
  StepPlan plan;
  plan.treatments = {Treatment::kTapeKeep};
  plan.tapes = tapes_;
  plan.registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
  plan.during_backward = [&] { plan.registry->revoke(std::int64_t{1} << 40U); };
  expect_identical(expected, run_step(*model_, input_, plan));
  EXPECT_GT(plan.registry->revocations(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, TapeParity,
                         ::testing::Combine(::testing::Values(Attention::kFlash, Attention::kMath),
                                            ::testing::Bool(), ::testing::Bool(),
                                            ::testing::Bool()),
                         [](const ::testing::TestParamInfo<Case>& tested) {
                           std::string name =
                               std::get<0>(tested.param) == Attention::kFlash ? "Flash" : "Math";
                           name += std::get<1>(tested.param) ? "Bf16" : "Fp32";
                           name += std::get<2>(tested.param) ? "PreNorm" : "PostNorm";
                           return name + (std::get<3>(tested.param) ? "InPlace" : "");
                         });

class TapeMemory : public ::testing::Test {
 protected:
  TapeMemory() : tapes_(std::make_shared<hooks::ClassTapes>()), model_(options()) {
    hooks::cpu_meter();
    input_ = at::randn({4, 128, 64});
    peak({Treatment::kTapeKeep});
  }
  static ToyOptions options() {
    ToyOptions out;
    out.layers = 6;
    out.hidden = 64;
    return out;
  }
  std::int64_t peak(std::vector<Treatment> treatments) {
    StepPlan plan;
    plan.treatments = std::move(treatments);
    plan.tapes = tapes_;
    return run_step(model_, input_, plan).peak_bytes;
  }

  std::shared_ptr<hooks::ClassTapes> tapes_;
  ToyModel model_;
  at::Tensor input_;
};

TEST_F(TapeMemory, DeeperStepsPeakLower) {
  const std::int64_t plain = peak({Treatment::kPlain});
  const std::int64_t first = peak({Treatment::kTapeFirst});
  const std::int64_t middle = peak({Treatment::kTapeMiddle});
  const std::int64_t last = peak({Treatment::kTapeLast});
  EXPECT_LT(first, plain);
  EXPECT_LT(middle, first);
  EXPECT_LT(last, middle);
  EXPECT_LT(last, plain / 2);
}

// A tape that drops nothing holds the plain call's bytes and no more.
TEST_F(TapeMemory, KeepByTapePeaksAsPlain) {
  EXPECT_EQ(peak({Treatment::kTapeKeep}), peak({Treatment::kPlain}));
}

// Masks and what no operator gives back go as well, once single tensors are spent.
TEST_F(TapeMemory, RevokedAsAWholeItPeaksAsFull) {
  const std::int64_t full = peak({Treatment::kFull});
  EXPECT_GT(peak({Treatment::kTapeRevokedAll}), full);
  EXPECT_EQ(peak({Treatment::kTapeRevokedWhole}), full);
}

TEST_F(TapeMemory, MenuRisesInBytesAndOperators) {
  const auto menu = tapes_->menu();
  ASSERT_NE(menu, nullptr);
  ASSERT_GE(menu->steps.size(), 3U);
  for (std::size_t i = 1; i < menu->steps.size(); ++i) {
    EXPECT_GT(menu->steps[i].freed_bytes, menu->steps[i - 1].freed_bytes);
    EXPECT_GE(menu->steps[i].operators.size(), menu->steps[i - 1].operators.size());
  }
  EXPECT_FALSE(menu->steps.front().packed.empty());  // dropout's noise, as bits
}

TEST(TapeTraps, AvailableInThisBuild) { EXPECT_TRUE(hooks::tape_available()); }

// A search recovers all that was saved while it is there: with no room under the cap it waits.
TEST(TapeTraps, WithoutRoomThereIsNoSearch) {
  hooks::cpu_meter();
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  ToyModel model(ToyOptions{.layers = 2, .hidden = 64});
  const at::Tensor input = at::randn({2, 9, 64});
  const StepResult expected = run_step(model, input, StepPlan{});
  StepPlan plan;
  plan.tapes = tapes;
  plan.treatments = {Treatment::kTapeKeep};
  hooks::cpu_meter().set_cap(1, /*refuse=*/false);
  for (int step = 0; step < 3; ++step) expect_identical(expected, run_step(model, input, plan));
  hooks::cpu_meter().set_cap(0, false);
  EXPECT_EQ(tapes->menu(), nullptr);
  EXPECT_TRUE(tapes->wants_collection());
  run_step(model, input, plan);
  run_step(model, input, plan);
  EXPECT_NE(tapes->menu(), nullptr);
}

// A bias changed in place between forward and backward raises, as without us.
TEST(TapeTraps, ParameterChangedBeforeTheBackwardRaises) {
  hooks::cpu_meter();
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  ToyModel model(ToyOptions{.layers = 2, .hidden = 64});
  const at::Tensor input = at::randn({2, 9, 64});
  StepPlan plan;
  plan.tapes = tapes;
  plan.treatments = {Treatment::kTapeLast};
  run_step(model, input, plan);
  plan.after_forward = [&] {
    const at::NoGradGuard no_grad;
    model.layers[0]->parameters[6].add_(1.0);
  };
  EXPECT_THROW(run_step(model, input, plan), c10::Error);
}

// Operators that differ from the collected ones: nothing is dropped, nothing is wrong.
TEST(TapeTraps, AnotherSequenceOfOperatorsIsKept) {
  hooks::cpu_meter();
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  ToyModel collected(ToyOptions{.layers = 2, .hidden = 64});
  ToyModel other(ToyOptions{.layers = 2, .hidden = 64, .pre_norm = true});
  const at::Tensor input = at::randn({2, 9, 64});
  StepPlan plan;
  plan.tapes = tapes;
  plan.treatments = {Treatment::kTapeLast};
  run_step(collected, input, plan);
  ASSERT_NE(tapes->menu(), nullptr);
  const StepResult expected = run_step(other, input, StepPlan{});
  expect_identical(expected, run_step(other, input, plan));
}

// What a backward in progress has let go of cannot recover what is given up later.
TEST(TapeTraps, RevokedInTheMiddleOfItsOwnBackward) {
  hooks::cpu_meter();
  hooks::install_engine();
  const auto registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
  const at::Tensor weight = at::randn({32, 32}).requires_grad_(true);
  const at::Tensor input = at::randn({16, 32}).requires_grad_(true);
  bool revoking = false;
  const hooks::FrameFunction function = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor first = at::gelu(at::linear(in[0], weight));
    const at::Tensor second = at::gelu(at::linear(first, weight));
    for (const at::Tensor& tensor : {first, second}) {
      tensor.register_hook([&](const at::Tensor&) {
        if (revoking) registry->revoke(std::int64_t{1} << 40U);
        return at::Tensor();
      });
    }
    return std::vector<at::Tensor>{at::tanh(second).mul(second)};
  };
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  at::Tensor expected;
  for (int step = 0; step < 6; ++step) {
    revoking = step >= 3;
    weight.mutable_grad() = at::Tensor();
    const auto frame = hooks::Frame::make({.registry = registry, .tapes = tapes});
    const at::Tensor x = input * 1.0;
    const at::Tensor out = frame->run_part(function, {x}, {})[0];
    frame->finish();
    torch::autograd::backward({out.sum()});
    if (step == 0) expected = weight.grad().clone();
    EXPECT_TRUE(at::equal(expected, weight.grad())) << step;
  }
}

TEST(TapeTraps, BatchNormIsNeverRunAgain) {
  hooks::cpu_meter();
  hooks::install_engine();
  const at::Tensor weight = at::randn({8, 8}).requires_grad_(true);
  const at::Tensor x = at::randn({16, 8}).requires_grad_(true);
  const auto step = [&](const std::shared_ptr<hooks::ClassTapes>& tapes, std::int32_t menu_step) {
    const at::Tensor mean = at::zeros({8});
    const at::Tensor variance = at::ones({8});
    weight.mutable_grad() = at::Tensor();
    const hooks::FrameFunction function = [&](const std::vector<at::Tensor>& in) {
      const at::Tensor normal =
          at::batch_norm(at::linear(in[0], weight), {}, {}, mean, variance, true, 0.1, 1e-5, false);
      return std::vector<at::Tensor>{at::gelu(normal).mul(at::tanh(normal))};
    };
    at::Tensor out;
    if (tapes) {
      const auto frame = hooks::Frame::make({.tapes = tapes, .menu_step = menu_step});
      out = frame->run_part(function, {x}, {})[0];
      frame->finish();
    } else {
      out = function({x})[0];
    }
    torch::autograd::backward({out.sum()});
    return std::tuple{weight.grad().clone(), mean, variance};
  };
  const auto tapes = std::make_shared<hooks::ClassTapes>();
  const auto [gradient, mean, variance] = step(nullptr, 0);
  for (int i = 0; i < 4; ++i) {
    const auto [again, mean_again, variance_again] = step(tapes, 3);
    EXPECT_TRUE(at::equal(gradient, again));
    EXPECT_TRUE(at::equal(mean, mean_again));
    EXPECT_TRUE(at::equal(variance, variance_again));
  }
}

// Somebody who changes an operator of their own in a notebook defines it again under its name.
TEST(TapeTraps, AnOperatorDefinedAgainIsReadAgain) {
  torch::Library kernels(torch::Library::FRAGMENT, "pudica_test", std::nullopt, __FILE__, __LINE__);
  // A kernel that stays keeps the dispatcher's entry, and so the schema's address, as they are.
  kernels.impl("again", torch::CppFunction::makeFallthrough());
  const auto read = [](const char* schema) {
    torch::Library library(torch::Library::FRAGMENT, "pudica_test", std::nullopt, __FILE__,
                           __LINE__);
    library.def(schema);
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("pudica_test::again", "");
    const hooks::OperatorFacts& facts = hooks::facts_of(op);
    EXPECT_EQ(&facts, &hooks::facts_of(op));
    return std::tuple{static_cast<const void*>(&op.schema()), facts.arguments, facts.writes_any};
  };
  const auto first = read("again(Tensor a, Tensor b) -> Tensor");
  EXPECT_EQ(first, std::tuple(std::get<0>(first), 2U, false));
  EXPECT_EQ(read("again(Tensor(a!) a) -> ()"), std::tuple(std::get<0>(first), 1U, true));
}

}  // namespace
}  // namespace pudica::testing
