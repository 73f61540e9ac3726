// Plans for forwards that share a backward (contrastive training), one forward at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/plan_builder.h"
#include "pudica/step_costs.h"

namespace pudica {

// As the backward of a forward finds them that was reached by way of another one's: parameters have
// their gradients then.
StepCosts without_new_gradients(StepCosts costs);

// The costs of a step whose forward is followed by `count` others before one backward, as one
// chain. Parameter gradients appear in the backward of the last forward, which runs first.
StepCosts followed(const StepCosts& first, const StepCosts& following, std::size_t count);
StepModel followed(const StepModel& first, const StepModel& following, std::size_t count);

// The part of a plan of such a chain that is the first forward's: its layers' modes. No peak
// is predicted. Under a budget every kept layer can be revoked.
void take_first(BuiltPlan& built, const StepCosts& costs, const StepContext& context);

// The forwards whose backward is to come in the step under way, or in one behind it: what that will
// need once it has come to them. Not thread-safe.
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
  Bytes first_base_bytes_{0};
  bool find_casts_ = false;
  bool known_ = true;
};

}  // namespace pudica
