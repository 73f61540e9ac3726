// Steps that nothing is known of: kept at shapes that have room, recomputed where most was revoked.
#include "controller/tight_shapes.h"

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

StepOutcome outcome(const ShapeKey& shape, std::int64_t budget, std::int64_t revocations,
                    bool overrun = false) {
  StepOutcome out;
  out.context.shape = shape;
  out.context.budget_bytes = Bytes(budget);
  out.revocations = revocations;
  out.overrun = overrun;
  return out;
}

TEST(TightShapes, HoldForLargerShapesAndSmallerBudgets) {
  TightShapes tight;
  tight.note(outcome({8, 128}, 1000, 4), 8);
  EXPECT_TRUE(tight.contains({8, 128}, Bytes(1000)));
  EXPECT_TRUE(tight.contains({9, 200}, Bytes(900)));
  EXPECT_FALSE(tight.contains({8, 127}, Bytes(1000)));
  EXPECT_FALSE(tight.contains({7, 500}, Bytes(1000)));
  EXPECT_FALSE(tight.contains({8, 128}, Bytes(1001)));
  EXPECT_FALSE(tight.contains({8, 128, 1}, Bytes(1000)));
}

TEST(TightShapes, AFewRevocationsAreNotMost) {
  TightShapes tight;
  tight.note(outcome({8, 128}, 1000, 3), 8);
  EXPECT_FALSE(tight.contains({8, 128}, Bytes(1000)));
  tight.note(outcome({8, 128}, 1000, 0, true), 8);
  EXPECT_TRUE(tight.contains({8, 128}, Bytes(1000)));
}

// A model whose segments are never seen: the controller stands down and still keeps to what it saw.
TEST(TightShapes, AStepThatCannotBePlannedRecomputesWhereMostWasRevoked) {
  Harness harness({});
  const Bytes budget = harness.budget_at({8, 512}, 0.05);
  const auto run = [&](const ShapeKey& shape, Bytes within) {
    const StepContext context = harness.model.context(shape, within);
    const StepDecision decision = harness.controller->begin_step(context);
    StepOutcome out = harness.model.run(context, decision);
    out.segments.clear();
    harness.controller->on_structure(harness.model.structure());
    harness.controller->end_step(out);
    return std::pair(decision, out);
  };
  std::int64_t revoked_steps = 0;
  for (const std::int64_t length : lengths(60, 4)) {
    revoked_steps += run({8, length}, budget).second.revocations > 3 ? 1 : 0;
  }
  EXPECT_EQ(harness.controller->state(), ControllerState::kStandingDown);
  EXPECT_LT(revoked_steps, 12);
  const auto [tight_decision, tight_outcome] = run({8, 512}, budget);
  EXPECT_EQ(tight_decision.plan->modes.front(), Mode::full()) << tight_decision.plan->reason;
  EXPECT_EQ(tight_outcome.revocations, 0);
  const auto [roomy_decision, roomy_outcome] = run({8, 32}, budget);
  EXPECT_EQ(roomy_decision.plan->modes.front(), Mode::keep()) << roomy_decision.plan->reason;
  EXPECT_EQ(run({8, 512}, Bytes(2 * budget.count())).first.plan->modes.front(), Mode::keep());
}

}  // namespace
}  // namespace pudica::testing
