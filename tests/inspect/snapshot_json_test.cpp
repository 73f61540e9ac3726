#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "inspect/json.h"

namespace pudica {
namespace {

using nlohmann::json;

Plan some_plan() {
  Plan plan;
  plan.id = 4;
  plan.shape = ShapeKey{12, 384};
  plan.modes = {Mode::keep(), Mode::full()};
  plan.predicted_peak_bytes = Bytes(900);
  plan.predicted_extra_seconds = 0.5;
  plan.reason = "1 of 2 layers recomputed: keeping both needs 200 B more";
  return plan;
}

ControllerSnapshot some_snapshot() {
  ControllerSnapshot snapshot;
  snapshot.state = ControllerState::kPlanning;
  snapshot.state_reason = "fit";
  snapshot.budget_bytes = Bytes(1000);
  snapshot.margin_bytes = Bytes(20);
  snapshot.margin_fraction = 0.02;
  snapshot.base_bytes = Bytes(300);
  snapshot.structure = {{{0, 0}, {0, SegmentKey::kLastOfClass}}, {"encoder"}};
  snapshot.counters = {10, 2, 3, 0, 1, 4, 0, 0};
  snapshot.cache_hits = 5;
  snapshot.cache_misses = 3;
  CachedPlan cached;
  cached.plan = std::make_shared<Plan>(some_plan());
  cached.fits_up_to = {ShapeKey{12, 400}, ShapeKey{10, 500}};
  cached.predicted_peak_bytes = Bytes(900);
  cached.measured_peak_bytes = Bytes(890);
  cached.slack_bytes = Bytes(80);
  cached.hits = 5;
  cached.created_step = 2;
  cached.last_used_step = 9;
  snapshot.plans = {cached};
  snapshot.learned = {{{SegmentKind::kForward, 0, Mode::keep(), 0},
                       "net_bytes",
                       PredictionBasis::kExact,
                       {"1", "batch*source"},
                       {{0, 512}},
                       4,
                       2}};
  snapshot.recent_peaks = {{9, ShapeKey{12, 384}, Bytes(900), Bytes(890)}};
  return snapshot;
}

TEST(SnapshotJson, HasTheDocumentedShape) {
  const json expected = json::parse(R"({
    "schema": "pudica.snapshot/1",
    "state": "planning", "state_reason": "fit",
    "budget_bytes": 1000, "margin_bytes": 20, "margin_fraction": 0.02, "base_bytes": 300,
    "structure": {"classes": ["encoder"],
                  "layers": [{"class": 0, "variant": 0}, {"class": 0, "variant": 1}],
                  "menus": []},
    "counters": {"steps": 10, "learning_steps": 2, "plans_made": 3, "infeasible_steps": 0,
                 "revoked_steps": 1, "revocations": 4, "overruns": 0, "drifts": 0,
                 "refused_states": 0},
    "cache": {"hits": 5, "misses": 3, "plans": 1},
    "plans": [{
      "key": "batch=12,source=384",
      "fits_up_to": ["batch=12,source=400", "batch=10,source=500"],
      "predicted_peak_bytes": 900, "measured_peak_bytes": 890, "slack_bytes": 80, "hits": 5,
      "created_step": 2, "last_used_step": 9,
      "reason": "1 of 2 layers recomputed: keeping both needs 200 B more",
      "plan": {"id": 4, "key": "batch=12,source=384", "modes": ["keep", "full"],
               "default_mode": "keep", "teach_first_of_class": false, "revocable": true,
               "feasible": true, "predicted_peak_bytes": 900, "predicted_extra_seconds": 0.5,
               "certified_gap_seconds": 0.0,
               "reason": "1 of 2 layers recomputed: keeping both needs 200 B more"}}],
    "learned": [{"segment": "forward/0/keep", "class_name": "encoder", "quantity": "net_bytes",
                 "basis": "exact", "monomials": ["1", "batch*source"],
                 "coefficients": [[0.0, 512.0]], "samples": 4, "distinct_shapes": 2}],
    "recent_peaks": [{"step": 9, "key": "batch=12,source=384", "predicted_bytes": 900,
                      "measured_bytes": 890}]
  })");
  const json written = json::parse(snapshot_to_json(some_snapshot()));
  EXPECT_EQ(written, expected) << json::diff(expected, written);
}

TEST(SnapshotJson, EmptySnapshotIsValid) {
  const json written = json::parse(snapshot_to_json({}));
  EXPECT_EQ(written.at("state"), "learning");
  EXPECT_EQ(written.at("plans"), json::array());
  EXPECT_EQ(written.at("learned"), json::array());
}

TEST(SnapshotJson, WhatWasNeverMeasuredIsNull) {
  ControllerSnapshot snapshot = some_snapshot();
  snapshot.plans[0].measured_peak_bytes = Bytes(0);
  snapshot.plans.push_back({});  // a record without its plan
  snapshot.recent_peaks[0].predicted_bytes = Bytes(0);
  const json written = json::parse(snapshot_to_json(snapshot));
  EXPECT_TRUE(written.at("plans")[0].at("measured_peak_bytes").is_null());
  EXPECT_TRUE(written.at("plans")[1].at("plan").is_null());
  EXPECT_TRUE(written.at("recent_peaks")[0].at("predicted_bytes").is_null());
}

TEST(SnapshotJson, ClassWithoutANameIsNull) {
  ControllerSnapshot snapshot = some_snapshot();
  snapshot.structure.class_names.clear();
  const json written = json::parse(snapshot_to_json(snapshot));
  EXPECT_TRUE(written.at("learned")[0].at("class_name").is_null());
}

TEST(SnapshotJson, NumbersThatAreNotFiniteAreZero) {
  ControllerSnapshot snapshot = some_snapshot();
  snapshot.learned[0].coefficients = {{std::numeric_limits<double>::infinity(), 1}};
  snapshot.margin_fraction = std::numeric_limits<double>::quiet_NaN();
  const json written = json::parse(snapshot_to_json(snapshot));
  EXPECT_EQ(written.at("learned")[0].at("coefficients"), json::parse("[[0.0, 1.0]]"));
  EXPECT_EQ(written.at("margin_fraction"), 0.0);
}

TEST(PlanJson, NamesItsSchemaAndEveryMode) {
  Plan plan = some_plan();
  plan.modes = {Mode::keep(), Mode::selective(3), Mode::offload(), Mode::full()};
  plan.joined = {0, 0, 0, 1};
  plan.predicted_peak_bytes = Bytes(0);
  const json written = json::parse(plan_to_json(plan));
  EXPECT_EQ(written.at("schema"), "pudica.plan/1");
  EXPECT_EQ(written.at("modes"), json::parse(R"(["keep", "selective:3", "offload", "full"])"));
  EXPECT_EQ(written.at("joined"), json::parse("[0, 0, 0, 1]"));
  EXPECT_TRUE(written.at("predicted_peak_bytes").is_null());
}

}  // namespace
}  // namespace pudica
