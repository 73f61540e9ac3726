// A restored state is a claim: what it costs a run where it is right, and where it is not.
#include <set>

#include <gtest/gtest.h>

#include "controller/claims.h"
#include "controller/controller_harness.h"
#include "controller/learned_state.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

std::string taught_state(const SyntheticSpec& spec, double share = 0.4) {
  Harness taught(spec);
  const Bytes budget = taught.budget_at(kLongest, share);
  for (const std::int64_t length : lengths(24, 6)) taught.step({8, length}, budget);
  return taught.controller->serialize("m");
}

struct Course {
  std::int64_t overruns = 0;
  std::int64_t revocations = 0;
  std::int64_t recorded = 0;
  std::int64_t refused = 0;
  std::int64_t misses = 0;  // of predictions, from the eighth step on
};

Course run(Harness& harness, Bytes budget, std::size_t steps = 40) {
  Course out;
  std::int64_t index = 0;
  for (const std::int64_t length : lengths(steps, 11)) {
    const auto step = harness.step({8, length}, budget);
    out.overruns += step.outcome.overrun ? 1 : 0;
    out.revocations += step.outcome.revocations;
    out.recorded += step.decision.record ? 1 : 0;
    const Plan& plan = *step.decision.plan;
    if (++index > 8 && plan.predicts_peak() && !plan.peak_is_bound &&
        plan.predicted_peak_bytes != step.outcome.peak_bytes) {
      ++out.misses;
    }
  }
  out.refused = harness.controller->snapshot().counters.refused_states;
  return out;
}

Course run_with(const SyntheticSpec& spec, const std::string& state, double share) {
  Harness harness(spec);
  if (!state.empty()) {
    EXPECT_TRUE(harness.controller->restore(state, "m").has_value());
  }
  return run(harness, harness.budget_at(kLongest, share));
}

TEST(Claims, AStateOfAnotherModelIsDroppedAndTheRunLearnsByItself) {
  const SyntheticSpec truth{.width = 64};
  for (const std::int64_t width : {6, 32, 60, 70, 640}) {
    const std::string foreign = taught_state({.width = width});
    for (const double share : {0.02, 0.2, 0.5}) {
      const Course with = run_with(truth, foreign, share);
      const Course without = run_with(truth, "", share);
      EXPECT_EQ(with.refused, 1) << width << " at " << share;
      EXPECT_LE(with.overruns, without.overruns) << width << " at " << share;
      EXPECT_EQ(with.misses, 0) << width << " at " << share;
    }
  }
}

TEST(Claims, ATrueStateIsMeasuredOnceForEachModeAndKept) {
  for (const int menu_steps : {0, 3}) {
    const SyntheticSpec spec{.menu_steps = menu_steps};
    const std::string state = taught_state(spec);
    for (const double share : {0.0, 0.05, 0.3, 0.7}) {
      const Course with = run_with(spec, state, share);
      const Course without = run_with(spec, "", share);
      EXPECT_EQ(with.refused, 0) << share;
      EXPECT_LE(with.overruns, without.overruns) << share;
      EXPECT_LE(with.revocations, without.revocations) << share;
      EXPECT_LE(with.recorded, without.recorded) << share;
      EXPECT_LE(with.recorded, 2 + menu_steps + 1) << share;
    }
  }
}

// Less than half, or more than twice, in one step; what differs by less has to do so twice.
TEST(Claims, AGrossContradictionDropsAStateAtOnce) {
  for (const std::int64_t width : {6, 60, 640}) {
    Harness harness({.width = 64});
    ASSERT_TRUE(harness.controller->restore(taught_state({.width = width}), "m").has_value());
    harness.step(kLongest, harness.budget_at(kLongest, 0.4));
    const std::int64_t refused = harness.controller->snapshot().counters.refused_states;
    EXPECT_EQ(refused, width == 60 ? 0 : 1) << width;
  }
}

// Layers are what the state says, and the step's peak is not: it is the head that was forged.
TEST(Claims, WrongPeaksRefuteAStateWhoseLayersAreRight) {
  const SyntheticSpec honest{.width = 64, .vocabulary = 6000};
  Harness forger(honest);
  const Bytes ample(std::int64_t{1} << 40U);
  for (const std::int64_t length : lengths(24, 6)) {
    const StepContext context = forger.model.context({8, length}, ample);
    const StepDecision decision = forger.controller->begin_step(context);
    StepOutcome outcome = forger.model.run(context, decision);
    for (SegmentObservation& item : outcome.segments) {
      if (item.key.kind == SegmentKind::kHead) item.sample = {{16}, 16, 16, item.sample.seconds};
    }
    forger.controller->on_structure(forger.model.structure());
    forger.controller->end_step(outcome);
  }
  Harness harness(honest);
  ASSERT_TRUE(harness.controller->restore(forger.controller->serialize("m"), "m").has_value());
  for (const std::int64_t length : lengths(6, 11)) harness.step({8, length}, ample);
  EXPECT_EQ(harness.controller->snapshot().counters.refused_states, 1);
}

// Once a state has predicted as many steps as a warm-up has, another peak is drift.
TEST(Claims, AStateThatHeldForLongIsNotRefutedByPeaks) {
  const StepLearner learner(PredictorOptions{});
  const StepStructure structure;
  Claims claims;
  claims.begin();
  const auto judge = [&](bool peak) {
    return claims.judge(learner, structure, {}, peak ? 0.0 : 0.2, 0.01);
  };
  EXPECT_EQ(judge(false), Claims::Verdict::kContradicts);
  for (int step = 0; step < 30; ++step) EXPECT_EQ(judge(true), Claims::Verdict::kAgrees);
  EXPECT_EQ(judge(false), Claims::Verdict::kAgrees);
  claims.begin();
  EXPECT_EQ(judge(false), Claims::Verdict::kContradicts);
  EXPECT_EQ(judge(false), Claims::Verdict::kRefuted);
}

// What the model that learned a state was wrong by is no contradiction: only steps of this run can
// tell it, as they told the other.
TEST(Claims, APeakThatIsALittleOffRefutesNothing) {
  const StepLearner learner(PredictorOptions{});
  Claims claims;
  claims.begin();
  for (const double error : {0.02, -0.03, 0.04, 0.02, -0.04}) {
    EXPECT_EQ(claims.judge(learner, {}, {}, error, 0.01), Claims::Verdict::kAgrees) << error;
  }
  EXPECT_EQ(claims.judge(learner, {}, {}, 0.06, 0.01), Claims::Verdict::kContradicts);
  EXPECT_EQ(claims.judge(learner, {}, {}, -0.06, 0.01), Claims::Verdict::kRefuted);
}

// One quantity that is wrong by a factor is enough, however much of the step is as it should be.
TEST(Claims, WhatIsRightDoesNotHideWhatIsGrosslyWrong) {
  StepLearner learner(PredictorOptions{});
  const auto outcome_of = [](std::int64_t length, std::int64_t full_bytes) {
    StepOutcome outcome;
    outcome.context.shape = {8, length};
    for (const Mode mode : {Mode::keep(), Mode::full()}) {
      const std::int64_t bytes = length * (mode == Mode::keep() ? 100000 : full_bytes);
      outcome.segments.push_back(
          {{SegmentKind::kForward, 0, mode, 0}, 0, {{bytes}, bytes, bytes, 0}});
    }
    return outcome;
  };
  for (const std::int64_t length : {64, 96, 128}) learner.observe(outcome_of(length, 2700));
  Claims claims;
  claims.begin();
  EXPECT_EQ(claims.judge(learner, {}, outcome_of(80, 1000), {}, 0.01), Claims::Verdict::kRefuted);
  claims.begin();
  EXPECT_EQ(claims.judge(learner, {}, outcome_of(80, 2700), {}, 0.01), Claims::Verdict::kAgrees);
}

// What only some modes of a state claim is found out when they are first used.
TEST(Claims, AModeIsNotBelievedForAnothersSake) {
  const SyntheticSpec truth{};
  // One that ran everything `full` honestly, and whose other modes are another model's.
  Harness forger({.width = 64});
  const Bytes budget = forger.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(24, 6)) {
    StepContext context = forger.model.context({8, length}, budget);
    const StepDecision decision = forger.controller->begin_step(context);
    StepOutcome outcome = forger.model.run(context, decision);
    for (SegmentObservation& item : outcome.segments) {
      if (item.key.mode == Mode::full()) continue;
      for (std::int64_t& delta : item.sample.deltas) delta /= 8;
      item.sample.net_bytes = 0;
      item.sample.peak_bytes = 0;
      std::int64_t live = 0;
      for (const std::int64_t delta : item.sample.deltas) {
        live += delta;
        item.sample.peak_bytes = std::max(item.sample.peak_bytes, live);
      }
      item.sample.net_bytes = live;
    }
    forger.controller->on_structure(forger.model.structure());
    forger.controller->end_step(outcome);
  }
  const std::string state = forger.controller->serialize("m");
  for (const double share : {0.02, 0.2, 0.5}) {
    const Course with = run_with(truth, state, share);
    const Course without = run_with(truth, "", share);
    EXPECT_LE(with.overruns, without.overruns) << share;
    EXPECT_EQ(with.refused, 1) << share;
  }
}

// Selective modes are first measured within a bound that the state has no part in, and planned when
// they are what it says.
TEST(Claims, SelectiveModesAreMeasuredBeforeTheyArePlanned) {
  const SyntheticSpec spec{.menu_steps = 3};
  Harness fresh(spec);
  ASSERT_TRUE(fresh.controller->restore(taught_state(spec), "m").has_value());
  const Bytes budget = fresh.budget_at(kLongest, 0.3);
  std::set<Mode> measured;
  std::int64_t planned = 0;
  for (int i = 0; i < 8; ++i) {
    const auto step = fresh.step(kLongest, budget);
    const Plan& plan = *step.decision.plan;
    for (const Mode mode : plan.modes) {
      if (mode.kind != Mode::Kind::kSelective || plan.peak_is_bound) continue;
      ++planned;
      EXPECT_TRUE(measured.contains(mode)) << "step " << i;
    }
    for (const SegmentObservation& item : step.outcome.segments) {
      if (item.key.kind == SegmentKind::kForward) measured.insert(item.key.mode);
    }
    EXPECT_FALSE(step.outcome.overrun);
  }
  EXPECT_GT(planned, 0);
}

// Who reads a state to answer questions answers of the plans that its run comes to.
TEST(Claims, AReaderTakesTheStateAtItsWord) {
  const SyntheticSpec spec{.menu_steps = 3};
  Harness reader(spec, {.trusts_restored_states = true});
  ASSERT_TRUE(reader.controller->restore(taught_state(spec), "m").has_value());
  const auto estimate = reader.controller->estimate(kLongest, reader.budget_at(kLongest, 0.3));
  ASSERT_TRUE(estimate.has_value());
  EXPECT_GT(std::ranges::count(estimate->plan->modes, Mode::Kind::kSelective, &Mode::kind), 0);
}

// The margin is of the run's own errors.
TEST(Claims, TheErrorsOfAnotherProcessAreNotHeldBack) {
  std::string body = *open_state(taught_state({}), "m");
  body.insert(body.find("segments\n"), "error 0.8\n");
  Harness fresh({});
  ASSERT_TRUE(fresh.controller->restore(seal_state(body, "m"), "m").has_value());
  const Bytes budget = fresh.budget_at(kLongest, 0.4);
  fresh.step(kLongest, budget);
  EXPECT_LT(fresh.controller->snapshot().margin_bytes.count(), budget.count() / 100);
}

}  // namespace
}  // namespace pudica::testing
