// What steps without hooks need less than their plans predict, as they are told.
#include "controller/spared_bytes.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

Plan plan_with(Mode mode, std::int64_t predicted_bytes = 1 << 20) {
  Plan plan;
  plan.modes = {Mode::keep(), mode};
  plan.predicted_peak_bytes = Bytes(predicted_bytes);
  return plan;
}

TEST(SparedBytes, AreOfAPlanAtAShape) {
  SparedBytes spared({});
  const StepContext context{.shape = ShapeKey{8, 512}};
  const Plan plan = plan_with(Mode::keep());
  EXPECT_EQ(spared.of(context, plan), Bytes(0));
  spared.note(context, plan, 4096);
  EXPECT_EQ(spared.of(context, plan), Bytes(4096));
  EXPECT_EQ(spared.of(context, plan_with(Mode::full())), Bytes(0));
  StepContext other = context;
  other.gradients_present = true;
  EXPECT_EQ(spared.of(other, plan), Bytes(0));
  other = context;
  other.casts_present = true;
  EXPECT_EQ(spared.of(other, plan), Bytes(0));
  spared.clear();
  EXPECT_EQ(spared.of(context, plan), Bytes(0));
}

TEST(SparedBytes, OfOneShapeSayNothingOfAnother) {
  SparedBytes spared({});
  const Plan plan = plan_with(Mode::keep());
  spared.note({.shape = ShapeKey{8, 512}}, plan, 4096);
  EXPECT_EQ(spared.of({.shape = ShapeKey{8, 1024}}, plan), Bytes(0));
  for (const std::int64_t length : {100, 200, 300, 400}) {
    spared.note({.shape = ShapeKey{8, length}}, plan, 8 * length);
  }
  EXPECT_EQ(spared.of({.shape = ShapeKey{8, 250}}, plan), Bytes(2000));
}

TEST(SparedBytes, AreNeitherNegativeNorMoreThanAll) {
  SparedBytes spared({});
  const StepContext context{.shape = ShapeKey{8, 512}};
  spared.note(context, plan_with(Mode::keep()), -4096);
  EXPECT_EQ(spared.of(context, plan_with(Mode::keep())), Bytes(0));
  spared.note(context, plan_with(Mode::full()), 4096);
  EXPECT_EQ(spared.of(context, plan_with(Mode::full(), 1000)), Bytes(1000));
}

TEST(SparedBytes, OfTheOldestPlanGoFirst) {
  SparedBytes spared({});
  const StepContext context{.shape = ShapeKey{8, 512}};
  const auto plan_of = [](std::size_t layers) {
    Plan plan = plan_with(Mode::keep());
    plan.modes.assign(layers, Mode::keep());
    return plan;
  };
  for (std::size_t i = 0; i <= SparedBytes::kMostPlans; ++i) {
    spared.note(context, plan_of(1 + i), 4096 + static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(spared.of(context, plan_of(1)), Bytes(0));
  EXPECT_EQ(spared.of(context, plan_of(2)), Bytes(4097));
  EXPECT_EQ(spared.of(context, plan_of(1 + SparedBytes::kMostPlans)),
            Bytes(4096 + static_cast<std::int64_t>(SparedBytes::kMostPlans)));
}

// A run in which steps without hooks need less: `per_token` bytes of every token.
class AiryRun {
 public:
  explicit AiryRun(std::int64_t per_token) : per_token_(per_token) {
    ControllerOptions options;
    options.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
    controller_ = make_controller(options);
  }

  // `hooks`: whatever the plan says, as where its prediction has yet to hold.
  StepOutcome step(std::int64_t length, Bytes budget, bool hooks = false) {
    const StepContext context = model_.context({8, length}, budget);
    const StepDecision decision = controller_->begin_step(context);
    StepOutcome outcome = model_.run(context, decision);
    outcome.ran_free = !hooks && !decision.record && !decision.plan->revocable;
    if (outcome.ran_free) outcome.peak_bytes = outcome.peak_bytes - Bytes(8 * length * per_token_);
    controller_->on_structure(model_.structure());
    controller_->end_step(outcome);
    return outcome;
  }
  void learn(Bytes budget) {
    for (int i = 0; i < 48; ++i) step(64 + 8 * (i * 7 % 24), budget);
  }
  [[nodiscard]] const Controller& controller() const { return *controller_; }

 private:
  std::int64_t per_token_;
  SyntheticModel model_{SyntheticSpec{}};
  std::unique_ptr<Controller> controller_;
};

constexpr Bytes kAmple(std::int64_t{1} << 40);

std::int64_t off(const StepOutcome& outcome) {
  return (outcome.plan->predicted_peak(outcome.ran_free) - outcome.peak_bytes).count();
}

TEST(SparedBytes, AreToldOfStepsWithoutHooks) {
  AiryRun run(40);
  run.learn(kAmple);
  for (const std::int64_t length : {64, 88, 200}) {
    const StepOutcome outcome = run.step(length, kAmple);
    ASSERT_TRUE(outcome.ran_free) << length;
    EXPECT_EQ(off(outcome), 0) << length;
    EXPECT_EQ(outcome.plan->spared_bytes, Bytes(8 * length * 40)) << length;
  }
  EXPECT_EQ(off(run.step(123, kAmple)), 0) << "a length that was not seen";
  const PeakRecord last = run.controller().snapshot().recent_peaks.back();
  EXPECT_EQ(last.predicted_bytes, last.measured_bytes);
}

// The same plan with hooks needs what was measured with hooks: it is neither judged nor planned by
// what others spared.
TEST(SparedBytes, AreNotOfStepsWithHooks) {
  AiryRun run(40);
  run.learn(kAmple);
  const StepOutcome outcome = run.step(88, kAmple, /*hooks=*/true);
  EXPECT_GT(outcome.plan->spared_bytes, Bytes(0));
  EXPECT_EQ(off(outcome), 0);
  EXPECT_EQ(run.controller().snapshot().counters.drifts, 0);
  EXPECT_EQ(off(run.step(88, kAmple)), 0) << "and says nothing of those without";
}

TEST(SparedBytes, ArePartOfNoPlan) {
  AiryRun spares(400);
  AiryRun plain(0);
  spares.learn(kAmple);
  plain.learn(kAmple);
  const Bytes need = plain.step(200, kAmple).peak_bytes;
  for (const double share : {0.6, 0.9, 0.99, 1.01, 1.2}) {
    const Bytes budget(static_cast<std::int64_t>(share * static_cast<double>(need.count())));
    const auto theirs = spares.controller().estimate({8, 200}, budget);
    const auto ours = plain.controller().estimate({8, 200}, budget);
    ASSERT_TRUE(theirs && ours);
    EXPECT_EQ(theirs->plan->modes, ours->plan->modes) << share;
    EXPECT_EQ(theirs->plan->predicted_peak_bytes, ours->plan->predicted_peak_bytes) << share;
  }
}

}  // namespace
}  // namespace pudica::testing
