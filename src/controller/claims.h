// Claims: what a restored state says, as far as this process has not seen it for itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "pudica/plan.h"
#include "pudica/policy.h"
#include "pudica/step_learner.h"

namespace pudica {

// A state comes from another process: of this model, of one that has changed since, or from
// anybody. It spares the warm-up, and it is no more than a claim until the run's own steps agree.
//
// * `keep` and `full` are tried first: a plan that runs a layer in a mode in which it was not
//   measured here is recorded, can be taken back, and joins nothing.
// * Other modes are on offer once a layer of the class was measured in them: until then they are
//   measured as those that never ran, within bounds that no claim enters (MenuLessons).
// * A recorded step whose layers needed less than half or more than twice what the state says of
//   them, or two steps that needed something else, and the state is dropped whole.
//
// A process that learned all by itself makes no claims. Not thread-safe: one owner thread.
class Claims {
 public:
  enum class Verdict : std::uint8_t { kNothingSaid, kAgrees, kContradicts, kRefuted };

  // A state was restored.
  void begin();
  void drop() { *this = {}; }
  // True in the first step behind it.
  bool begin_step() { return std::exchange(untouched_, false); }

  // What is known is a restored state's, which other runs measured.
  [[nodiscard]] bool are_made() const { return made_; }
  // Whether the plan runs some layer as it was not measured here.
  [[nodiscard]] bool doubts(const StepStructure& structure, const Plan& plan) const;
  // Whether some layer was not measured here in this mode, which what others need is reckoned from:
  // that of joint segments, and of modes that never ran.
  [[nodiscard]] bool doubts_basis(const StepStructure& structure, Mode mode) const;
  // Whether no layer of the class was measured here in this mode.
  [[nodiscard]] bool doubts_class(std::uint16_t layer_class, Mode mode) const;
  // The latest step was not what the state says: the next is to be one of learning.
  [[nodiscard]] bool contradicted() const { return contradicted_; }

  // Takes a step, before the learner does from it; `peak_error`: of its predicted peak, as a share,
  // nullopt where nothing was predicted. Refuted: the state is to be dropped.
  Verdict judge(const StepLearner& learner, const StepStructure& structure,
                const StepOutcome& outcome, std::optional<double> peak_error, double fit_error);

 private:
  // Class, variant (where in its class it stands), mode.
  using ModeOfLayer = std::tuple<std::uint16_t, std::uint8_t, Mode>;
  struct Seen {
    bool measured = false;
    int asked = 0;
  };

  // Layers do not always run as they are to (revoked ones are kept for nothing): asked for so often
  // is enough.
  static constexpr int kMostTries = 3;
  static constexpr int kMostContradictions = 1;
  // A peak further off than this is another model's. What is nearer may be what the model that
  // learned the state was wrong by (a run measures such plans, and a state does not say so).
  static constexpr double kOtherPeak = 0.05;
  // Steps with the peak that the state predicts, after which another peak is drift.
  static constexpr int kStepsOfProof = 30;

  [[nodiscard]] bool is_seen(const StepStructure::Layer& layer, Mode mode) const;
  void note_seen(const StepStructure& structure, const StepOutcome& outcome);

  bool made_ = false;
  bool untouched_ = false;
  bool contradicted_ = false;
  int contradictions_ = 0;
  int proofs_ = 0;
  std::map<ModeOfLayer, Seen> seen_;
};

}  // namespace pudica
