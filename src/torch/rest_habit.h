// RestHabit: which steps are known so well that nothing needs to be done in their layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "pudica/shape_key.h"
#include "torch/largest_shapes.h"

namespace pudica::hooks {

// Where all layers are kept without hooks, what is done in them is to look: which they are, what
// they are given, how long they take. A step whose like was looked at twice, with the same layers
// each time and no more bytes than predicted, rests: its layers are passed by, but for one such
// step in sixteen. One look is enough at a shape that another covers which was looked at so, with
// the same layers. Resting steps are judged by their peak; the first that is above what is
// predicted ends the rest of all, and twice as many looks are needed from then on. Not thread-safe.
class RestHabit {
 public:
  using Classes = std::vector<std::uint16_t>;  // of the layer calls, in their order

  // A step begins in which all layers are to be kept without hooks. Steps are alike where the
  // caller's `kind` and the shape are the same. `look`: it must not rest.
  void begin(std::int64_t kind, const ShapeKey& shape, bool look) {
    step_ = {kind, shape};
    const auto known = known_.find(*step_);
    rests_ = !look && known != known_.end() && !known->second.vary && is_known(known->second) &&
             known->second.rests < kMostRests;
    if (rests_) ++known->second.rests;
  }
  [[nodiscard]] bool is_asked() const { return step_.has_value(); }
  // The step that has begun.
  [[nodiscard]] bool rests() const { return rests_; }

  // A step that was looked at is over. `held`: it needed no more than predicted, and no layer had
  // a hook.
  void looked(const Classes& classes, bool held) {
    if (!step_ || rests_) return;
    if (known_.size() >= kMostSteps) known_.clear();
    Known& known = known_.try_emplace(*step_, Known{classes}).first->second;
    known.vary = known.vary || known.classes != classes;
    known.looks = held ? known.looks + 1 : 0;
    known.rests = 0;
    if (known.vary) {
      largest_.clear();
    } else if (known.looks >= needed_) {
      largest_.add(step_->second, like(known), true);
    }
  }
  void rested(bool held) {
    if (held || !rests_) return;
    forget();
    needed_ = std::min(2 * needed_, kMostNeeded);
  }
  // No step of this kind, or none any more.
  void reset() {
    step_.reset();
    rests_ = false;
  }
  // The model is another one.
  void forget() {
    known_.clear();
    largest_.clear();
  }

 private:
  static constexpr std::int64_t kMostNeeded = std::int64_t{1} << 20U;
  static constexpr std::int64_t kMostRests = 15;  // in a row
  static constexpr std::size_t kMostSteps = 4096;
  struct Known {
    Classes classes;
    std::int64_t looks = 0;  // at which it held, in a row
    std::int64_t rests = 0;  // since the latest
    bool vary = false;       // its layers, from step to step
  };

  using Alike = std::pair<std::int64_t, Classes>;

  [[nodiscard]] Alike like(const Known& known) const { return {step_->first, known.classes}; }
  [[nodiscard]] bool is_known(const Known& known) const {
    if (known.looks >= needed_) return true;
    return known.looks > 0 && largest_.above(step_->second, like(known)).has_value();
  }

  std::map<std::pair<std::int64_t, ShapeKey>, Known> known_;
  LargestShapes<Alike, bool> largest_;  // at which steps were looked at often enough
  std::int64_t needed_ = 2;
  std::optional<std::pair<std::int64_t, ShapeKey>> step_;
  bool rests_ = false;
};

}  // namespace pudica::hooks
