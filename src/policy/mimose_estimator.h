// Mimose's collector and estimator: samples of the warm-up, one quadratic a layer and one in all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/quadratic_fit.h"
#include "pudica/policy.h"

namespace pudica {

// The one size that Mimose sees of a shape: the source length (dimension 1), or the only dimension.
// 0 for a shape without dimensions.
std::int64_t mimose_size(const ShapeKey& shape);

// Most bytes above the step's base during forward and backward. The optimizer's own peak is left
// out, as in Mimose's code, where the recorded segments account for the measured peak; else it is
// the measured peak. Requires: recorded with every layer recomputed.
double mimose_step_peak_bytes(const StepOutcome& outcome);

// Collects steps, then is fitted once. Not thread-safe: one owner thread.
class MimoseEstimator {
 public:
  // The layers to expect: a step that lacks one of them gives no whole-model sample. 0: unknown.
  void expect_layers(std::size_t layers);

  // A completed warm-up step: bytes each layer would have kept, as its recompute measured them.
  // The first step gives no whole-model sample, since the optimizer's state appears in it.
  void collect(const StepOutcome& outcome);
  [[nodiscard]] std::int64_t collected_steps() const { return collected_steps_; }

  // Fits all samples by least squares. Requires: called once.
  void fit();
  // nullopt: no samples of that layer, or of the whole model.
  [[nodiscard]] std::optional<double> layer_bytes(std::size_t layer, std::int64_t size) const;
  [[nodiscard]] std::optional<double> whole_bytes(std::int64_t size) const;
  // Layers of which anything was collected or that were expected.
  [[nodiscard]] std::size_t layers() const { return layers_.size(); }

 private:
  struct Quantity {
    std::vector<double> sizes;
    std::vector<double> bytes;
    std::optional<Quadratic> fitted;
  };

  std::size_t expected_layers_ = 0;
  std::int64_t collected_steps_ = 0;
  std::vector<Quantity> layers_;
  Quantity whole_;
};

}  // namespace pudica
