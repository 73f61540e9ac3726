// Selective modes: learned beside keep and full, planned exactly, forgotten with their menu.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

TEST(ControllerMenu, PlansOverTheMenuToTheByteAndBeatsKeepAndFull) {
  Harness harness({.menu_steps = 3});
  Harness plain({});
  const Bytes budget = harness.budget_at(kLongest, 0.4);
  double with_menu = 0;
  double without = 0;
  std::int64_t selective = 0;
  int step = 0;
  for (const std::int64_t length : lengths(40, 3)) {
    const auto done = harness.step({8, length}, budget);
    const auto other = plain.step({8, length}, budget);
    EXPECT_FALSE(done.outcome.overrun) << length;
    if (++step <= 10) continue;
    ASSERT_EQ(done.state, ControllerState::kPlanning) << step;
    EXPECT_EQ(done.outcome.peak_bytes, done.decision.plan->predicted_peak_bytes) << length;
    EXPECT_EQ(done.outcome.revocations, 0);
    with_menu += harness.true_extra_seconds(done);
    without += plain.true_extra_seconds(other);
    selective += selective_layers(*done.decision.plan);
  }
  EXPECT_GT(selective, 0);
  EXPECT_LT(with_menu, 0.6 * without);
}

// What other programs on the machine do to the times of a step they do to all of them.
TEST(ControllerMenu, PlansAsWellOnAMachineWhosePaceChanges) {
  double extra = 0;
  double best = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SyntheticSpec spec{.menu_steps = 3, .pace_noise = 0.8, .seed = seed};
    if (seed % 2 == 0) spec.encoder_layers = spec.decoder_layers = 4;
    Harness harness(spec);
    const ShapeKey longest = seed % 2 == 0 ? ShapeKey{8, 512, 512} : kLongest;
    const Bytes budget = harness.budget_at(longest, 0.3);
    const auto trace = lengths(80, seed);
    const auto others = lengths(80, seed + 50);
    for (std::size_t i = 0; i < trace.size(); ++i) {
      const auto shape = seed % 2 == 0 ? ShapeKey{8, trace[i], others[i]} : ShapeKey{8, trace[i]};
      const auto done = harness.step(shape, budget);
      if (i < 20) continue;
      extra += harness.true_extra_seconds(done);
      best += harness.oracle(done.outcome.context).plan.predicted_extra_seconds;
    }
  }
  EXPECT_LE(extra, 1.02 * best);
}

// Modes are compared by what they take of a forward, whichever steps they were measured in.
TEST(ControllerMenu, PricesOfModesAreFreeOfTheMachinesPace) {
  std::vector<double> errors;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Harness harness({.menu_steps = 3, .pace_noise = 0.8, .seed = seed});
    const Bytes budget = harness.budget_at(kLongest, 0.3);
    StepContext context;
    for (const std::int64_t length : lengths(60, seed)) {
      context = harness.step({8, length}, budget).outcome.context;
    }
    for (const std::int64_t length : {64, 160, 320, 512}) {
      context.shape = {8, length};
      const auto learned = harness.controller->costs(context);
      ASSERT_TRUE(learned.has_value());
      const StepCosts truth = harness.model.true_costs(context.shape, false);
      const auto share = [](const StepCosts& costs, Mode mode) {
        const auto& modes = costs.layers[1].modes;
        const auto seconds = [&modes](Mode of) {
          const auto found = std::ranges::find(modes, of, &LayerModeCosts::mode);
          return found == modes.end() ? 0 : found->extra_seconds;
        };
        return seconds(mode) / seconds(Mode::full());
      };
      for (std::uint16_t k = 0; k < 3; ++k) {
        const Mode mode = Mode::selective(k);
        errors.push_back(std::abs(share(*learned, mode) / share(truth, mode) - 1));
      }
    }
  }
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.02);
  EXPECT_LE(errors.back(), 0.1);
}

TEST(ControllerMenu, LearnsAllModesInFewSteps) {
  Harness harness({.menu_steps = 3});
  int learning = 0;
  for (const std::int64_t length : lengths(20, 5)) {
    const auto done = harness.step({8, length}, harness.budget_at(kLongest, 0.5));
    learning += done.state == ControllerState::kLearning ? 1 : 0;
  }
  EXPECT_LE(learning, 4);
}

// Planning begins with `keep` and `full`, in the very step in which it would without a menu.
TEST(ControllerMenu, TheFirstPlanComesNoLaterThanWithKeepAndFull) {
  ControllerOptions plain;
  plain.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  for (const int layers : {1, 2, 4, 8}) {
    for (const double share : {0.05, 0.3, 0.7}) {
      Harness with({.encoder_layers = layers, .menu_steps = 3});
      Harness without({.encoder_layers = layers, .menu_steps = 3}, plain);
      for (const std::int64_t length : lengths(16, 5)) {
        const Bytes budget = with.budget_at(kLongest, share);
        const auto one = with.step({8, length}, budget);
        const auto other = without.step({8, length}, budget);
        EXPECT_EQ(one.state, other.state) << layers << " layers, share " << share;
        EXPECT_TRUE(other.outcome.overrun || !one.outcome.overrun) << layers << ", " << share;
      }
    }
  }
}

// Steps that measure selective modes are planned within the budget, recorded and not kept.
TEST(ControllerMenu, ModesAreMeasuredInPlannedStepsWithinTheBudget) {
  for (const double share : {0.02, 0.1, 0.3, 0.7}) {
    Harness harness({.encoder_layers = 6, .menu_steps = 3});
    const Bytes budget = harness.budget_at(kLongest, share);
    int measuring = 0;
    for (const std::int64_t length : lengths(60, 4)) {
      const auto done = harness.step({8, length}, budget);
      if (done.state == ControllerState::kPlanning) {
        EXPECT_LE(done.outcome.peak_bytes, budget);
      }
      if (!done.decision.plan->peak_is_bound) continue;
      EXPECT_FALSE(done.decision.plan->predicts_peak());
      ++measuring;
      EXPECT_TRUE(done.decision.record);
      EXPECT_LE(done.outcome.peak_bytes, done.decision.plan->predicted_peak_bytes) << share;
      EXPECT_LE(done.decision.plan->predicted_peak_bytes, budget);
      EXPECT_EQ(done.outcome.revocations, 0);
    }
    EXPECT_GT(measuring, 0) << share;
    EXPECT_LE(measuring, 8) << share;
  }
}

// Where everything fits nothing is gained by it.
TEST(ControllerMenu, NothingIsMeasuredWhileEverythingFits) {
  Harness harness({.menu_steps = 3});
  for (const std::int64_t length : lengths(20, 5)) {
    const auto done = harness.step({8, length}, harness.budget_at(kLongest, 1.5));
    if (done.state == ControllerState::kPlanning) {
      EXPECT_EQ(selective_layers(*done.decision.plan), 0);
    }
  }
}

// Neither a plan nor, all together, what it takes to learn the menu.
TEST(ControllerMenu, NeverSlowerThanKeepAndFull) {
  ControllerOptions plain;
  plain.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  for (const bool promises : {true, false}) {
    for (const double share : {0.02, 0.1, 0.3, 0.7}) {
      Harness with({.encoder_layers = 6, .menu_steps = 3, .promises = promises});
      Harness without({.encoder_layers = 6, .menu_steps = 3}, plain);
      const Bytes budget = with.budget_at(kLongest, share);
      double seconds = 0;
      double seconds_without = 0;
      int step = 0;
      for (const std::int64_t length : lengths(60, 4)) {
        const auto one = with.step({8, length}, budget);
        const auto other = without.step({8, length}, budget);
        if (++step == 1) continue;  // its layers are not known
        seconds += with.true_extra_seconds(one);
        seconds_without += without.true_extra_seconds(other);
        if (step <= 24 || one.decision.plan->peak_is_bound) continue;
        EXPECT_LE(with.true_extra_seconds(one), without.true_extra_seconds(other) + 1e-9)
            << share << ", length " << length;
      }
      EXPECT_LT(seconds, seconds_without) << share;
    }
  }
}

// One step is a little too large, all others fit: to measure the menu takes no more time, all
// together, than that one lost. Without promises a mode may cost what `full` does.
TEST(ControllerMenu, WhatIsMeasuredBesideThePlanIsPaidFor) {
  ControllerOptions plain;
  plain.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  const SyntheticSpec spec{.encoder_layers = 6, .menu_steps = 3, .promises = false};
  Harness with(spec);
  Harness without(spec, plain);
  const Bytes budget = with.budget_at({8, 300}, 0.95);
  double seconds = 0;
  double lost = 0;
  int measuring = 0;
  for (const std::int64_t length : {100, 120, 140, 300, 270, 266, 262, 258, 254, 250, 246}) {
    const auto done = with.step({8, length}, budget);
    const auto other = without.step({8, length}, budget);
    if (done.state != ControllerState::kPlanning) continue;
    seconds += with.true_extra_seconds(done);
    lost += without.true_extra_seconds(other);
    if (done.decision.plan->peak_is_bound) ++measuring;
  }
  EXPECT_GT(measuring, 0);
  EXPECT_GT(lost, 0);
  EXPECT_LE(seconds, 2 * lost);
}

// The plan of a shape that comes again and again is made anew with what was lost to it. A mode for
// whose bound a full plan leaves no room is not measured at that shape: hence the quarter.
TEST(ControllerMenu, AShapeThatRecursIsNotLeftWithItsFirstPlan) {
  for (int layers = 2; layers <= 8; ++layers) {
    for (const double share : {0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97}) {
      Harness harness({.encoder_layers = layers, .menu_steps = 3, .promises = false});
      const Bytes budget = harness.budget_at({8, 300}, share);
      for (const std::int64_t length : {100, 120, 140}) harness.step({8, length}, budget);
      for (int step = 0; step < 120; ++step) {
        const auto done = harness.step({8, step % 2 == 0 ? 300 : 296}, budget);
        if (step < 118) continue;
        const auto best = harness.oracle(done.outcome.context);
        EXPECT_LE(harness.true_extra_seconds(done), best.plan.predicted_extra_seconds * 1.25)
            << layers << ", " << share << ": " << done.decision.plan->reason;
      }
    }
  }
}

// A budget that is short for the first time is met by modes that never ran, in more than one layer.
TEST(ControllerMenu, APromiseIsPlannedWithBeforeItWasMeasured) {
  Harness harness({.encoder_layers = 6, .menu_steps = 3});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  for (const std::int64_t length : {100, 120, 140, 110}) harness.step({8, length}, budget);
  const auto done = harness.step({8, kLongest[1]}, budget);
  const Plan& plan = *done.decision.plan;
  ASSERT_EQ(done.state, ControllerState::kPlanning);
  EXPECT_GE(selective_layers(plan), 3) << plan.reason;
  EXPECT_EQ(std::ranges::count(plan.modes, Mode::full()), 0) << plan.reason;
  EXPECT_TRUE(plan.peak_is_bound);
  EXPECT_TRUE(plan.revocable);
  EXPECT_TRUE(done.decision.record);
  EXPECT_LE(done.outcome.peak_bytes, plan.predicted_peak_bytes);
  EXPECT_LE(plan.predicted_peak_bytes, budget);
}

// Layers that ran other operators at a shape: the plan that is cached for it is not used again.
TEST(ControllerMenu, AShapeThatTheMenuDoesNotFitIsPlannedWithoutIt) {
  Harness harness({.menu_steps = 3});
  const Bytes budget = harness.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(40, 3)) harness.step({8, length}, budget);
  for (int again = 0; again < 2; ++again) {
    EXPECT_GT(selective_layers(*harness.step({8, 400}, budget).decision.plan), 0);
  }
  StepStructure structure = harness.model.structure();
  structure.menus[0].not_at.push_back({8, 400});
  harness.controller->on_structure(structure);
  const auto here = harness.controller->begin_step(harness.model.context({8, 400}, budget));
  EXPECT_EQ(selective_layers(*here.plan), 0);
  const auto beside = harness.controller->begin_step(harness.model.context({8, 408}, budget));
  EXPECT_GT(selective_layers(*beside.plan), 0);
}

TEST(ControllerMenu, ALoneLayerLearnsItsMenuInTurns) {
  Harness harness({.encoder_layers = 1, .menu_steps = 2});
  ControllerState last = ControllerState::kLearning;
  for (const std::int64_t length : lengths(16, 5)) {
    last = harness.step({8, length}, harness.budget_at(kLongest, 0.5)).state;
  }
  EXPECT_EQ(last, ControllerState::kPlanning);
}

TEST(ControllerMenu, SelectiveModesAreWantedUnlessTheMenuLeavesThemOut) {
  EXPECT_TRUE(make_controller({})->wants_menus());
}

TEST(ControllerMenu, TheMenuOptionKeepsSelectiveModesOut) {
  ControllerOptions options;
  options.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  Harness harness({.menu_steps = 3}, options);
  EXPECT_FALSE(harness.controller->wants_menus());
  for (const std::int64_t length : lengths(20, 5)) {
    const auto done = harness.step({8, length}, harness.budget_at(kLongest, 0.3));
    EXPECT_EQ(selective_layers(*done.decision.plan), 0);
  }
}

TEST(ControllerMenu, StateWithMenusIsRestored) {
  Harness taught({.menu_steps = 3});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  Harness fresh({.menu_steps = 3});
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  fresh.step({8, 64}, budget);  // the optimizer makes its state
  for (const std::int64_t length : {496, 72, 504}) {
    const auto step = fresh.step({8, length}, budget);
    EXPECT_EQ(step.state, ControllerState::kPlanning) << step.decision.plan->reason;
    if (step.decision.plan->peak_is_bound) continue;  // selective modes are tried
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes);
  }
}

Harness taught_harness(const SyntheticSpec& spec) {
  Harness taught(spec);
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  return taught;
}

// A process that restores a state does not know its menus before its first step has run.
TEST(ControllerMenu, AMenuFoundAgainIsNotLearnedAnew) {
  const SyntheticSpec spec{.menu_steps = 3};
  const Harness taught = taught_harness(spec);
  Harness fresh(spec);
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  const Bytes budget = fresh.budget_at(kLongest, 0.3);
  StepStructure unknown = fresh.model.structure();
  unknown.menus.clear();
  fresh.controller->on_structure(unknown);
  fresh.step({8, 64}, budget);
  std::int64_t selective = 0;
  for (const std::int64_t length : {496, 72, 504, 488, 480, 472}) {
    const auto step = fresh.step({8, length}, budget);
    EXPECT_EQ(step.state, ControllerState::kPlanning);
    if (step.decision.plan->peak_is_bound) continue;  // they are tried
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes);
    selective += selective_layers(*step.decision.plan);
  }
  EXPECT_GT(selective, 0);
  EXPECT_EQ(fresh.controller->snapshot().counters.learning_steps, 0);
}

// What another menu taught is not used.
TEST(ControllerMenu, AnotherMenuIsLearnedAnew) {
  const SyntheticSpec spec{.menu_steps = 3};
  const Harness taught = taught_harness(spec);
  Harness fresh(spec);
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  StepStructure other = fresh.model.structure();
  other.menus[0].id = 99;
  fresh.controller->on_structure(other);
  StepContext context = fresh.model.context(kLongest, fresh.budget_at(kLongest, 0.3));
  const StepDecision decision = fresh.controller->begin_step(context);
  EXPECT_EQ(fresh.controller->state(), ControllerState::kPlanning);
  const auto costs = fresh.controller->costs(context);
  ASSERT_TRUE(costs.has_value());
  EXPECT_EQ(costs->layers[0].modes.size(), 2U);
}

// A class whose menu was withdrawn has no selective modes any more.
TEST(ControllerMenu, AWithdrawnMenuIsNotPlanned) {
  Harness taught = taught_harness({.menu_steps = 3});
  StepStructure none = taught.model.structure();
  none.menus[0] = {StepStructure::Menu::kNone, {}};
  taught.controller->on_structure(none);
  const auto decision = taught.controller->begin_step(
      taught.model.context(kLongest, taught.budget_at(kLongest, 0.3)));
  EXPECT_EQ(selective_layers(*decision.plan), 0);
}

TEST(ControllerMenu, PlansOverOffloadToTheByteAndWithinTheHost) {
  ControllerOptions options;
  options.menu = {Mode::Kind::kKeep, Mode::Kind::kOffload, Mode::Kind::kFull};
  ControllerOptions small = options;
  small.host_bytes = 0;
  Harness harness({.offloads = true}, options);
  Harness plain({}, small);
  const Bytes budget = harness.budget_at(kLongest, 0.4);
  std::int64_t offloaded = 0;
  double with = 0;
  double without = 0;
  int step = 0;
  for (const std::int64_t length : lengths(30, 3)) {
    const auto done = harness.step({8, length}, budget);
    const auto other = plain.step({8, length}, budget);
    EXPECT_FALSE(done.outcome.overrun) << length;
    EXPECT_FALSE(other.outcome.overrun) << length;
    if (++step <= 10) continue;
    ASSERT_EQ(done.state, ControllerState::kPlanning) << step;
    EXPECT_EQ(done.outcome.peak_bytes, done.decision.plan->predicted_peak_bytes) << length;
    offloaded += std::ranges::count(done.decision.plan->modes, Mode::offload());
    EXPECT_EQ(std::ranges::count(other.decision.plan->modes, Mode::offload()), 0);
    with += harness.true_extra_seconds(done);
    without += plain.true_extra_seconds(other);
  }
  EXPECT_GT(offloaded, 0);
  EXPECT_LT(with, 0.6 * without);
}

}  // namespace
}  // namespace pudica::testing
