// Whatever the cache hands out is as good as planning afresh.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

// Over random models and lengths, with budget and base moving: each plan of an identified shape
// fits what is available and is slower than a fresh plan by no more than the two certificates.
TEST(PlanProperty, CachedPlansFitAndStayWithinTheirCertificate) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SyntheticSpec spec;
    spec.encoder_layers = 2 + static_cast<int>(random() % 14);
    spec.width = 32 << (random() % 3);
    Harness harness(spec);
    double share = 0.5;
    for (int i = 0; i < 150; ++i) {
      if (i % 40 == 39) share = 0.1 + 0.1 * static_cast<double>(random() % 8);
      const Bytes budget = harness.budget_at({8, 512}, share);
      const ShapeKey shape{8, 32 + static_cast<std::int64_t>(random() % 30) * 16};
      const auto hits = harness.controller->snapshot().cache_hits;
      const auto step = harness.step(shape, budget);
      const auto after = harness.controller->snapshot();
      if (step.state != ControllerState::kPlanning || step.decision.record) continue;
      const Plan& plan = *step.decision.plan;
      const bool hit = after.cache_hits > hits;
      ASSERT_TRUE(plan.feasible);
      EXPECT_LE(plan.predicted_peak_bytes, budget) << i;
      EXPECT_EQ(step.outcome.peak_bytes, plan.predicted_peak_bytes) << i;
      const auto costs = harness.controller->costs(step.outcome.context);
      ASSERT_TRUE(costs.has_value());
      PlanRequest request;
      request.context = step.outcome.context;
      request.margin_bytes = after.margin_bytes;
      const auto planner = make_planner({});
      const BuiltPlan fresh = build_plan(*planner, *costs, request, {});
      // The margin shrinks by less than a new plan is worth: a thousandth of the budget.
      const double slack = plan.certified_gap_seconds + fresh.plan.certified_gap_seconds +
                           (hit ? 2e-4 + 0.01 * costs->step_seconds : 1e-6);
      // By what is known now: the step has taught of its times.
      const double extra = step_extra_seconds(*costs, choice_of(plan, *costs));
      EXPECT_LE(extra, fresh.plan.predicted_extra_seconds + slack) << i;
    }
  }
}

}  // namespace
}  // namespace pudica::testing
