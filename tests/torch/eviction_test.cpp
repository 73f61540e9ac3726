// Single tensors given up by a rule: the same bits, within the budget, again and again.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

constexpr EvictionRule kRules[] = {
    EvictionRule::kDtr,  EvictionRule::kDtrEq, EvictionRule::kLocal,  EvictionRule::kLru,
    EvictionRule::kSize, EvictionRule::kMsps,  EvictionRule::kRandom, EvictionRule::kMegEngine};

// One layer's frame, whose tensors a rule gives up when the registry is asked for a byte.
class EvictingFrame : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 64;
  static constexpr std::int64_t kWidth = 32;
  static constexpr std::int64_t kWide = 128;

  EvictingFrame() {
    hooks::install_engine();
    at::manual_seed(3);
    const auto weight = [](std::int64_t in, std::int64_t out) {
      return (at::randn({in, out}) / 8.0).set_requires_grad(true);
    };
    weights_ = {weight(kWidth, kWide), weight(kWide, kWidth), weight(kWidth, kWidth)};
    input_ = at::randn({kRows, kWidth});
  }

  at::Tensor layer(const at::Tensor& x) {
    at::Tensor wide = at::gelu(at::mm(x, weights_[0]));
    if (drops_) wide = at::dropout(wide, 0.3, /*train=*/true);
    const at::Tensor narrow = at::tanh(at::mm(wide, weights_[1]));
    if (in_backward_) narrow.register_hook([this](const at::Tensor&) { in_backward_(); });
    return at::sigmoid(at::mm(at::sin(narrow * x), weights_[2])) * narrow;
  }

  // `after_forward` before its backward.
  std::vector<at::Tensor> run(EvictionRule rule, const std::function<void()>& after_forward = {}) {
    for (at::Tensor& weight : weights_) weight.mutable_grad() = at::Tensor();
    const at::Tensor leaf = input_.clone().set_requires_grad(true);
    hooks::FrameOptions options;
    options.registry = registry_;
    options.tapes = tapes_;
    if (evicts_) {
      options.eviction = std::make_shared<hooks::EvictionControl>();
      options.eviction->rule = rule;
      options.eviction->began = options.eviction->clock.now();
    }
    auto frame = hooks::Frame::make(std::move(options));
    at::Tensor out = frame->run_part(
        [this](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{layer(in[0])}; },
        {leaf * 1.0}, {})[0];
    frame->finish();
    if (after_forward) after_forward();
    torch::autograd::backward({(out * out).sum()});
    std::vector<at::Tensor> gradients{leaf.grad().clone()};
    for (const at::Tensor& weight : weights_) gradients.push_back(weight.grad().clone());
    return gradients;
  }

  // The two calls from which the class's menu is found.
  std::vector<at::Tensor> find_menu() {
    run(EvictionRule::kDtr);
    std::vector<at::Tensor> expected = run(EvictionRule::kDtr);
    EXPECT_NE(tapes_->menu(), nullptr);
    return expected;
  }

  // Each single tensor once; what that gave back.
  std::vector<std::int64_t> evict_all() {
    std::vector<std::int64_t> freed;
    for (std::size_t i = 0; i < tapes_->menu()->order.size(); ++i) {
      const std::int64_t before = hooks::cpu_meter().in_use_bytes();
      EXPECT_TRUE(registry_->revoke(1));
      freed.push_back(before - hooks::cpu_meter().in_use_bytes());
    }
    return freed;
  }

  std::shared_ptr<hooks::Registry> registry_ =
      std::make_shared<hooks::Registry>(hooks::cpu_meter());
  std::shared_ptr<hooks::ClassTapes> tapes_ =
      std::make_shared<hooks::ClassTapes>(MenuRules{}, /*evicts=*/true);
  std::vector<at::Tensor> weights_;
  at::Tensor input_;
  std::function<void()> in_backward_;
  bool drops_ = false;
  bool evicts_ = true;
};

TEST_F(EvictingFrame, GivesUpTheTensorOfTheLeastScore) {
  const std::vector<at::Tensor> expected = find_menu();
  std::vector<std::int64_t> freed;
  expect_equal(expected, run(EvictionRule::kSize, [&] { freed = evict_all(); }));
  ASSERT_GT(freed.size(), 2U);
  EXPECT_TRUE(std::ranges::is_sorted(freed, std::greater<>())) << "the largest goes first";
  EXPECT_EQ(freed.front(), kRows * kWide * 4);
  EXPECT_EQ(freed.back(), kRows * kWidth * 4);
}

// They are never run again, and would be what a layer is left with.
TEST_F(EvictingFrame, HoldsMasksAsBits) {
  drops_ = true;
  const auto held_by = [this](bool evicts) {
    find_menu();
    evicts_ = evicts;
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    std::int64_t held = 0;
    at::manual_seed(5);
    const auto gradients =
        run(EvictionRule::kDtr, [&] { held = hooks::cpu_meter().in_use_bytes() - before; });
    return std::pair(held, gradients);
  };
  const auto [whole, expected] = held_by(false);
  const auto [packed, gradients] = held_by(true);
  expect_equal(expected, gradients);
  constexpr std::int64_t kMask = kRows * kWide * 4;
  EXPECT_LT(packed, whole - kMask + kMask / 16);
}

TEST_F(EvictingFrame, WhatWasRecoveredGoesAgainWhileItIsWanted) {
  const std::vector<at::Tensor> expected = find_menu();
  int again = 0;
  in_backward_ = [&] {
    while (registry_->revoke(1)) ++again;
  };
  for (const EvictionRule rule : kRules) {
    again = 0;
    expect_equal(expected, run(rule, [&] { evict_all(); }));
    EXPECT_GT(again, 0) << "rule " << static_cast<int>(rule);
  }
}

// Keeps everything; by a rule, or each tensor once.
class EvictingPolicy final : public Policy {
 public:
  explicit EvictingPolicy(std::optional<Eviction> eviction) : eviction_(eviction) {}
  [[nodiscard]] std::string name() const override { return "evicting"; }
  void on_structure(const StepStructure& /*structure*/) override {}
  [[nodiscard]] bool wants_menus() const override { return true; }
  [[nodiscard]] std::optional<Eviction> eviction() const override { return eviction_; }
  StepDecision begin_step(const StepContext& /*context*/) override {
    Plan plan;
    plan.id = 1;
    return {std::make_shared<const Plan>(std::move(plan))};
  }
  void end_step(const StepOutcome& outcome) override { outcomes.push_back(outcome); }

  std::vector<StepOutcome> outcomes;

 private:
  std::optional<Eviction> eviction_;
};

class Evicting : public SessionTest {
 protected:
  static constexpr std::int64_t kLength = 192;

  struct Run {
    std::vector<at::Tensor> gradients;
    std::int64_t peak_bytes = 0;
    std::int64_t base_bytes = 0;
    std::int64_t revocations = 0;
    double recovery_seconds = 0;
  };

  // The last of some steps under a budget above the base, 0: none.
  Run run(std::optional<Eviction> eviction, std::int64_t above_base_bytes) {
    const auto policy = std::make_shared<EvictingPolicy>(eviction);
    AttachOptions options;
    options.policy = policy;
    options.parameters = model_->parameters();
    options.clock = clock_;
    auto handle = attach(std::move(options));
    EXPECT_TRUE(handle.has_value());
    train_step(**handle, kLength);  // finds the menu
    const std::int64_t base = report_.base_bytes.count();
    if (above_base_bytes > 0) (*handle)->set_budget(Bytes(base + above_base_bytes));
    Run out;
    for (int step = 0; step < 2; ++step) out.gradients = train_step(**handle, kLength);
    EXPECT_EQ((*handle)->failures(), 0);
    EXPECT_FALSE(report_.overrun) << above_base_bytes;
    out.base_bytes = report_.base_bytes.count();
    out.peak_bytes = report_.peak_bytes.count() - out.base_bytes;
    out.revocations = report_.revocations;
    for (const RecomputeTime& time : policy->outcomes.back().recomputes) {
      out.recovery_seconds += time.seconds;
    }
    return out;
  }
};

TEST_F(Evicting, ByAnyRuleGivesTheSameBitsWithinTheBudget) {
  const Run kept = run(std::nullopt, 0);
  EXPECT_EQ(kept.revocations, 0);
  for (const EvictionRule rule : kRules) {
    for (const double share : {0.85, 0.7, 0.55}) {
      const auto budget = static_cast<std::int64_t>(share * static_cast<double>(kept.peak_bytes));
      const Run evicted = run(Eviction{rule, 3}, budget);
      EXPECT_LE(evicted.peak_bytes, budget) << "rule " << static_cast<int>(rule);
      EXPECT_GT(evicted.revocations, 0);
      expect_equal(kept.gradients, evicted.gradients);
    }
  }
}

TEST_F(Evicting, HoldsTheLeastBudgetThatRevocationHolds) {
  const Run kept = run(std::nullopt, 0);
  const auto holds = [&](std::optional<Eviction> eviction, double share) {
    const auto budget = static_cast<std::int64_t>(share * static_cast<double>(kept.peak_bytes));
    const auto policy = std::make_shared<EvictingPolicy>(eviction);
    AttachOptions options;
    options.policy = policy;
    options.parameters = model_->parameters();
    auto handle = attach(std::move(options));
    train_step(**handle, kLength);
    (*handle)->set_budget(Bytes(report_.base_bytes.count() + budget));
    bool within = true;
    for (int step = 0; step < 2; ++step) {
      expect_equal(kept.gradients, train_step(**handle, kLength));
      within = within && !report_.overrun;
    }
    return within;
  };
  int held = 0;
  for (double share = 0.6; share > 0.2; share -= 0.05) {
    if (!holds(std::nullopt, share)) break;
    ++held;
    EXPECT_TRUE(holds(Eviction{}, share)) << share;
  }
  EXPECT_GT(held, 0);
}

}  // namespace
}  // namespace pudica::testing
