// What is known, as JSON text: plans, the controller's snapshot, step records and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/plan.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica {

inline constexpr std::string_view kPlanSchema = "pudica.plan/1";
inline constexpr std::string_view kSnapshotSchema = "pudica.snapshot/1";
inline constexpr std::string_view kStepSchema = "pudica.step/1";

// What a learning step measured of its segments, enough to replay it.
struct StepProfiles {
  Bytes base_bytes{0};  // live when the step began
  bool gradients_present = false;
  bool casts_present = false;  // StepContext
  StepStructure structure;
  std::vector<SegmentObservation> segments;
};

// One line of a run's record; docs/step_record.md describes the text form.
struct StepRecord {
  std::string run;
  std::uint64_t step = 0;
  ShapeKey key;
  std::optional<std::uint64_t> plan_id;  // nullopt: the step ran without a plan
  std::vector<Mode> modes;               // by layer, as planned
  std::optional<Bytes> predicted_bytes;  // nullopt: not predicted
  Bytes measured_bytes{0};               // peak, base included
  Bytes budget_bytes{0};                 // 0: measured, not limited
  double seconds = 0;
  std::optional<double> recompute_seconds;  // inspect/recomputation.h; nullopt: not known
  std::int64_t revocations = 0;
  bool overrun = false;
  // Live when the step began, and whether gradients existed already; nullopt: not told.
  std::optional<Bytes> base_bytes;
  std::optional<bool> gradients_present;
  bool casts_present = false;  // StepContext; of older records not told
  bool ran_free = false;       // StepOutcome; of older records not told
  Bytes host_peak_bytes{0};    // of layers of mode `offload`, in host memory
  std::optional<AllocatorPeaks> allocator;
  std::optional<StepProfiles> profiles;  // only of recorded steps
};

// The record of an outcome. Segments are taken over where the outcome has them, with `structure`.
StepRecord make_step_record(std::string run, std::uint64_t step, const StepOutcome& outcome,
                            const StepStructure& structure);

// One line without its end. Never throws: text that is not UTF-8 is replaced, numbers that are
// not finite become 0.
std::string step_record_to_json(const StepRecord& record);

// Reads one line. Errors: kInvalidArgument naming the field, the value seen and the value expected;
// another version of the schema is refused with both names. Fields not known are passed over.
Result<StepRecord> parse_step_record(std::string_view line);

// An object, indented by two spaces. Never throws.
std::string plan_to_json(const Plan& plan);

// The whole snapshot: state, counters, cached plans with their key regions, learned models.
std::string snapshot_to_json(const ControllerSnapshot& snapshot);

}  // namespace pudica
