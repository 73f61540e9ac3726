#include "inspect/recording_policy.h"

#include <utility>

#include "inspect/json.h"
#include "inspect/recomputation.h"

namespace pudica {

RecordingPolicy::RecordingPolicy(std::shared_ptr<Policy> inner, std::string run,
                                 std::unique_ptr<std::ostream> out)
    : inner_(std::move(inner)), run_(std::move(run)), out_(std::move(out)) {}

void RecordingPolicy::on_structure(const StepStructure& structure) {
  structure_ = structure;
  inner_->on_structure(structure);
}

void RecordingPolicy::end_step(const StepOutcome& outcome) {
  ++step_;
  recomputed_ = {};
  recomputed_.step_seconds = outcome.seconds;
  if (outcome.plan) {
    recomputed_.calls =
        recomputed_calls(planned_modes(*outcome.plan, structure_), outcome.revocations);
    recomputed_.seconds = recompute_seconds(outcome, structure_);
  }
  if (out_) {
    *out_ << step_record_to_json(make_step_record(run_, step_, outcome, structure_)) << '\n'
          << std::flush;
  }
  inner_->end_step(outcome);
}

RecordingPolicy::Recomputed RecordingPolicy::take_recomputed() {
  return std::exchange(recomputed_, {});
}

}  // namespace pudica
