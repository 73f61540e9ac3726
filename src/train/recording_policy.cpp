#include "train/recording_policy.h"

#include <utility>

#include "inspect/json.h"
#include "inspect/recomputation.h"

namespace pudica::train {

RecordingPolicy::RecordingPolicy(std::shared_ptr<Policy> inner, std::unique_ptr<std::ostream> out)
    : inner_(std::move(inner)), out_(std::move(out)) {}

void RecordingPolicy::on_structure(const StepStructure& structure) {
  structure_ = structure;
  inner_->on_structure(structure);
}

StepDecision RecordingPolicy::begin_step(const StepContext& context) {
  recomputed_ = {};
  return inner_->begin_step(context);
}

void RecordingPolicy::end_step(const StepOutcome& outcome) {
  ++step_;
  recomputed_.step_seconds = outcome.seconds;
  if (outcome.plan) {
    recomputed_.calls =
        recomputed_calls(planned_modes(*outcome.plan, structure_), outcome.revocations);
    recomputed_.seconds = recompute_seconds(outcome, structure_);
  }
  if (out_) {
    *out_ << step_record_to_json(make_step_record("pudica-train", step_, outcome, structure_))
          << '\n'
          << std::flush;
  }
  inner_->end_step(outcome);
}

}  // namespace pudica::train
