// PooledModel: one fingerprint's model, taught by the learning steps of several processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/json.h"
#include "pudica/controller.h"
#include "pudica/result.h"

namespace pudica::daemon {

// How much a model knows.
struct Knowledge {
  std::int64_t recorded_steps = 0;
  std::int64_t distinct_shapes = 0;  // the most that any segment was seen at
  std::int64_t samples = 0;          // distinct shapes summed over the segments

  [[nodiscard]] bool more_than(const Knowledge& other) const {
    if (samples != other.samples) return samples > other.samples;
    return recorded_steps > other.recorded_steps;
  }
};

// A controller that never plans for anyone: recorded steps are replayed into it. What it would have
// planned plays no part, since a controller learns from the segments of an outcome alone, and
// judges only outcomes of its own plans.
//
// Two things in a record belong to its process and not to the model, so they are kept apart by
// source: an optimizer's sample is judged by the live bytes of the *same* process's next step (its
// first step makes the optimizer's state), and steps in a row that the model mispredicts.
// Not thread-safe: one owner thread.
class PooledModel {
 public:
  PooledModel(std::string fingerprint, ControllerOptions options);

  // Learns from one step of `source`; one that was not recorded only tells that the one before it
  // has ended. Errors: kInvalidArgument naming what is wrong with the record; nothing has changed
  // then.
  // True: the model has learned something that others may want.
  Result<bool> observe(const std::string& source, const StepRecord& record);
  // Takes the state of a run over, whole, where it knows more. One that contradicts what is known
  // is put aside, and what two runs in turn contradict is dropped for what the latter says: it is
  // not taken again. Errors: those of Controller::restore; kInvalidArgument for a state that was
  // dropped.
  Result<bool> adopt(const std::string& state, std::string_view source);

  // The learned state; empty: nothing was recorded yet.
  [[nodiscard]] const std::string& state() const { return state_; }
  [[nodiscard]] const Knowledge& knowledge() const { return knowledge_; }
  // How often two runs contradicted what was known, so that it was dropped.
  [[nodiscard]] int drops() const { return drops_; }
  // Marks of the states that were dropped, the latest last; bounded. The same in every process.
  [[nodiscard]] const std::vector<std::uint64_t>& dropped() const { return dropped_; }
  // Those of a model before this one: adopt() refuses their states.
  void set_dropped(std::vector<std::uint64_t> marks);

 private:
  // What waits for the next step of its process.
  struct HeldOptimizer {
    StepRecord record;  // with the optimizer's segments alone
    bool gradients_present = false;
  };
  struct Source {
    std::optional<HeldOptimizer> optimizer;
    std::int32_t skipped_optimizers = 0;  // in a row: they left bytes behind
    bool has_optimizer_state = false;     // made by a step that was seen to leave it behind
    std::int32_t misfits_in_a_row = 0;
    std::vector<StepRecord> misfits;  // the last of them
    std::uint64_t used = 0;
  };

  Source& source_of(const std::string& name);
  void settle_optimizer(Source& source, const StepRecord& next);
  Result<bool> settle_unrecorded(Source& source, const StepRecord& next);
  void give_optimizer(const StepRecord& record, Bytes next_base_bytes);
  // Another's optimizer, where this model has none: it may wait for its process's next step.
  bool take_optimizer_of(const Controller& other);
  bool contradicts(const Controller& candidate, std::string_view source);
  void replay(const StepRecord& record);
  // Not empty: these records, the last of them `record`, show that the model has changed under its
  // fingerprint, where old samples would spoil the new ones.
  std::vector<StepRecord> add_misfit(Source& source, const StepRecord& record);
  // Some layer's forward is not what the model, which is sure of this shape, says of it.
  [[nodiscard]] bool is_misfit(const StepRecord& record) const;
  void start_anew();
  void drop();
  // True: learned something. Takes the text of the new state; falls back to the old one where the
  // controller gave up.
  Result<bool> conclude(std::int64_t samples_before);

  std::string fingerprint_;
  ControllerOptions options_;
  std::unique_ptr<Controller> controller_;
  StepStructure structure_;
  std::optional<StepRecord> last_;  // without its segments
  std::string state_;
  Knowledge knowledge_;
  std::map<std::string, Source> sources_;
  std::uint64_t uses_ = 0;
  std::int32_t misfits_needed_;
  std::set<std::string, std::less<>> contradicted_by_;  // runs whose states say otherwise
  std::vector<std::uint64_t> dropped_;
  int drops_ = 0;
};

// What a state knows. Errors: those of Controller::restore.
Result<Knowledge> knowledge_of(const std::string& state, const std::string& fingerprint);

}  // namespace pudica::daemon
