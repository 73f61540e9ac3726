// RelativeTimes: what the segments of a layer take, relative to the forward of its class in the
// same step. How fast a machine is changes from step to step (other programs, clock rates) and is
// common to all that one step measures: ratios within a step are free of it, so that modes which
// were measured in different steps can be compared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "predictor/times/pace.h"
#include "pudica/predictor.h"
#include "pudica/result.h"

namespace pudica {

// Not thread-safe: one owner thread.
class RelativeTimes {
 public:
  using PredictorFactory = std::function<std::unique_ptr<Predictor>()>;

  struct Estimate {
    double seconds = 0;
    double sigma_seconds = 0;
  };

  explicit RelativeTimes(PredictorFactory factory);

  // What the forward of a layer of the class took in one step: the mean over its layers. Before
  // observe() for the same step.
  void observe_forward(std::uint16_t layer_class, const ShapeKey& shape, double seconds);
  // A backward or recompute of that step. `forward_seconds`: of the same layers; 0 where that is
  // not known, the class's then stands for it. Ignored where neither is known.
  void observe(const SegmentKey& key, const ShapeKey& shape, double seconds,
               double forward_seconds);

  // How fast the machine is now, as a factor of the times that were learned over all steps.
  [[nodiscard]] double pace() const { return pace_.value(); }
  [[nodiscard]] bool set_pace(double value) { return pace_.set(value); }

  // Of a layer's forward, backward or recompute, at the machine's pace. nullopt: not known, or
  // another segment.
  [[nodiscard]] std::optional<Estimate> predict(const SegmentKey& key, const ShapeKey& shape) const;

  void forget(const SegmentKey& key);
  void forget_class(std::uint16_t layer_class);
  // Rises whenever a prediction may have changed.
  [[nodiscard]] std::uint64_t version() const { return times_->version() + pace_.changes(); }

  // Text, and back; not of the pace. Errors: kCorrupt, nothing is changed then.
  [[nodiscard]] std::string serialize() const { return times_->serialize(); }
  Result<void> restore(const std::string& text);

 private:
  void give(const SegmentKey& key, const ShapeKey& shape, double seconds);
  // At the pace that was learned; 0: not known.
  [[nodiscard]] double usual_forward(std::uint16_t layer_class, const ShapeKey& shape) const;

  PredictorFactory factory_;
  // Bytes are none. Seconds: of forwards as they are; of the others the ratio times the shape's
  // volume, to which time fits are relative, in units of their own.
  std::unique_ptr<Predictor> times_;
  Pace pace_;
};

}  // namespace pudica
