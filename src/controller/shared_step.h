// Plans for forwards that share a backward (contrastive training), one forward at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/plan_builder.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/step_costs.h"
#include "pudica/step_learner.h"

namespace pudica {

using LayerClasses = std::set<std::uint16_t>;
LayerClasses classes_of(const StepCosts& costs);

// As the backward of a forward finds them that was reached by way of others', which ran layers of
// these classes: their parameters have their gradients then.
StepCosts without_new_gradients(StepCosts costs, const LayerClasses& classes);

// The costs of forwards that follow each other before one backward, as one chain. Parameter
// gradients appear in the backward of the last forward that runs their layers: it comes first.
StepCosts followed(std::span<const StepCosts> forwards);
StepModel followed(const std::vector<StepModel>& forwards);

// The part of a plan of such a chain that is the first forward's: its layers' modes. No peak
// is predicted. Under a budget every kept layer can be revoked.
void take_first(BuiltPlan& built, const StepCosts& costs, const StepContext& context);

// Who plans forwards of some kinds, by numbers of its own.
class ForwardOwner {
 public:
  virtual ~ForwardOwner() = default;
  // Errors: kUnavailable.
  [[nodiscard]] virtual Result<StepModel> model_at(std::uint8_t kind,
                                                   const StepContext& context) const = 0;
  // A later forward's backward went on to one of this kind.
  virtual void learn_waited(std::uint8_t kind, const WaitedForward& waited) = 0;
};

struct ForwardKind {
  ForwardOwner* owner = nullptr;
  std::uint8_t number = 0;

  bool operator==(const ForwardKind&) const = default;
};

// Its shape is not known before it comes: the latest one's.
struct Follower {
  ForwardKind kind;
  ShapeKey shape;
};

// The forwards whose backward is to come in the step under way, or in one behind it: what that will
// need once it has come to them. Controllers of one model (each call with other arguments has its
// own) have one in common. Not thread-safe.
class WaitingForwards {
 public:
  // A step begins.
  void begin(const StepContext& context);
  // The step under way will wait, run as planned: so its peaks, with what `costs` have behind its
  // last layer.
  void plan(const StepPeaks& peaks, const StepCosts& costs);
  // Another plan is made for it, or none.
  void plan_no_more() { latest_.reset(); }
  // The most that is in use when the backward of the step under way, which leaves so much live, has
  // come to the forwards before it. Of their head and loss only bounds are known: those of a
  // forward that is alone. nullopt: one of them was not planned for.
  [[nodiscard]] std::optional<Bytes> peak(std::int64_t live_behind_backward) const;
  // The latest forward that followed another one found weights cast.
  [[nodiscard]] bool find_casts() const { return find_casts_; }

  // Forwards that ended and wait, oldest first.
  struct Ran {
    std::uint64_t step = 0;  // as their StepContext had it
    ForwardKind kind;
    bool recorded = false;
  };
  // A forward ended: what it followed was followed by it. `waits`: its backward is to come.
  void ended(const Ran& forward, const StepContext& context, bool waits);
  [[nodiscard]] const std::vector<Ran>& ran() const { return ran_; }
  // By what the latest forward of this kind was followed, of another one; null: by nothing, or its
  // backward came with it.
  [[nodiscard]] const Follower* follower(const ForwardKind& kind) const;
  // Whether the backward of a later forward, where both are recorded, tells of such a forward: not
  // where it has had its own by then.
  void note_shown(const ForwardKind& kind, bool shown);
  [[nodiscard]] bool may_be_shown(const ForwardKind& kind) const;
  // All that is known of a kind, or of all of an owner.
  void forget(const ForwardKind& kind);
  void forget(const ForwardOwner* owner);
  // The base bytes of the first of them, or of the step under way.
  [[nodiscard]] Bytes first_base_bytes() const { return first_base_bytes_; }

 private:
  struct Forward {
    std::int64_t tail_net_bytes = 0;  // behind its last layer
    std::int64_t rise_bytes = 0;      // its backward's peak, above what is live where those end
    std::int64_t left_bytes = 0;      // live behind its backward, of what its layers made
    Bytes end_bytes{0};               // in use as the next forward began
  };
  std::vector<Forward> forwards_;
  std::optional<Forward> latest_;
  std::vector<Ran> ran_;
  std::vector<std::pair<ForwardKind, Follower>> followers_;
  static constexpr int kMostInVain = 3;
  std::vector<std::pair<ForwardKind, int>> in_vain_;  // since one was shown
  Bytes first_base_bytes_{0};
  bool find_casts_ = false;
  bool known_ = true;
};

}  // namespace pudica
