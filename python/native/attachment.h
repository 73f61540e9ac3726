// Attachment: what the Python package holds of an attached model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/custom_class.h>

#include "inspect/model_view.h"
#include "inspect/recording_policy.h"
#include "inspect/reporting_policy.h"
#include "native/controllers.h"
#include "native/plans_taken.h"
#include "native/range_budget.h"
#include "native/settings.h"
#include "pudica/torch.h"

namespace pudica::python {

// A TorchBind class without a Python symbol: the same binary serves every Python that this torch
// supports. Errors are std::runtime_error; where the user is to see them, "kind: message". Not
// thread-safe but for what Handle says.
class Attachment final : public torch::CustomClassHolder {
 public:
  // `settings`: JSON, see settings.h.
  Attachment(const std::string& settings, std::vector<at::Tensor> parameters);
  ~Attachment() override;

  // `kind`: which way of calling the model this is; below 0: none that is told apart, the key says
  // too little for a plan, and layers are kept as long as there is room. Dimensions by name, all at
  // least 1. `at_layer`: the forward has come to its first layer. A sum of Step: kPlanned, the step
  // has a plan; kMayRest, it may be asked to rest().
  std::int64_t begin_step(std::int64_t kind, const std::vector<std::string>& names,
                          const std::vector<std::int64_t>& values, bool at_layer);
  enum Step : std::int64_t { kUnplanned = 0, kPlanned = 1, kMayRest = 2 };
  // As Handle's.
  bool waits() { return handle_->waits(); }
  bool went_back() { return handle_->went_back(); }
  bool rest(bool same_model);
  bool passes(std::int64_t passed);
  void wake(std::int64_t passed);
  void rested(std::int64_t passed, std::vector<at::Tensor> outputs);
  // What the step that was open did, as a sum of Outcome.
  std::int64_t end_step();
  enum Outcome : std::int64_t { kNone = 0, kStep = 1, kOverrun = 2, kInfeasible = 4 };

  // The layer call `token` begins with these inputs, whose first `telling_inputs` tell classes
  // apart. `apart`: the layer call before it cannot be run again until its own backward. But for
  // kNotEntered leave() or abandon() follows; kEntered: nothing will ask for the token again.
  std::int64_t enter(std::int64_t token, const std::string& layer_class,
                     std::vector<at::Tensor> inputs, std::vector<at::Tensor> buffers,
                     std::int64_t telling_inputs, bool apart);
  enum Entry : std::int64_t { kNotEntered = 0, kEntered = 1, kMayRunAgain = 2 };
  void leave(std::vector<at::Tensor> outputs);
  void abandon();

  void count_residents(std::vector<at::Tensor> tensors);
  // `fraction` of the way from what recomputing every layer of the longest shapes needs to what
  // keeping all needs, at most `bytes`; below 0: the bytes themselves. Throws "budget: message".
  void set_budget(std::int64_t bytes, double fraction);
  // What a fraction comes to now; -1: not known yet.
  [[nodiscard]] std::int64_t range_bytes(double fraction);
  [[nodiscard]] std::int64_t budget() const { return budget_bytes_.count(); }
  void detach();

  // JSON. `shape` as users write it; a negative budget: the one in force. Questions about a shape
  // throw "unlearned: message" where nothing is known of it yet, else "shape: message".
  [[nodiscard]] std::string snapshot() const;
  // Of a policy that keeps no plans itself: what it planned so far.
  [[nodiscard]] std::string taken_plans() const;
  [[nodiscard]] std::string stats() const;
  [[nodiscard]] std::string explain(const std::string& shape, std::int64_t budget) const;
  [[nodiscard]] std::string estimate(const std::string& shape, std::int64_t budget) const;
  // The learned state and back.
  [[nodiscard]] std::string serialize() const;
  void restore(const std::string& text);

 private:
  struct Totals {
    std::int64_t steps = 0;
    std::int64_t learning_steps = 0;
    std::int64_t unplanned_steps = 0;
    std::int64_t resting_steps = 0;  // whose layers were passed by
    std::int64_t layer_calls = 0;
    std::int64_t recomputed_layers = 0;  // calls run again as a whole
    std::int64_t recomputed_calls = 0;   // and those in part: inspect/recomputation.h
    double recompute_seconds = 0;        // of steps where it is known
    double step_seconds = 0;             // and what these took
    std::int64_t revocations = 0;
    std::int64_t revoked_steps = 0;
    std::int64_t overruns = 0;
    std::int64_t infeasible_steps = 0;
    std::int64_t highest_peak_bytes = 0;
    std::int64_t host_peak_bytes = 0;
    std::int64_t reserved_peak_bytes = 0;
  };

  void report_to_daemon(const Settings& settings);
  // A fraction that is in force; `most_bytes`: until it is known what it comes to, and beyond which
  // it does not go.
  struct Fraction {
    double of_range = 0;
    Bytes most_bytes{0};
  };

  [[nodiscard]] std::string without_answers() const;
  void take_fraction(double of_range, Bytes most_bytes);
  std::optional<Bytes> next_budget();
  void tell_daemon();
  Controllers& controllers() const;  // throws where there are none
  inspect::ModelView view() const;   // likewise
  void count(const StepReport& report);

  std::string fingerprint_;
  std::string policy_spec_;
  std::shared_ptr<Controllers> controllers_;  // null: another policy than pudica
  std::shared_ptr<Policy> policy_;
  std::shared_ptr<RecordingPolicy> recording_;  // around the policy
  std::shared_ptr<ReportingPolicy> reporting_;  // null: no daemon wanted
  std::unique_ptr<Handle> handle_;
  Bytes budget_bytes_{0};
  std::int64_t kind_ = -1;  // of the step under way
  std::optional<Fraction> fraction_;
  RangeBudget range_;
  StepReport last_;
  RecordingPolicy::Recomputed recomputed_;  // of that step
  Totals totals_;
  PlansTaken taken_;
};

}  // namespace pudica::python
