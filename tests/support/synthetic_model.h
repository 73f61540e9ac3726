// SyntheticModel: a training step as lists of allocations, run under a plan at any shape.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/policy.h"

namespace pudica::testing {

struct SyntheticSpec {
  int encoder_layers = 8;   // class `first_class`, over dimension 1
  int decoder_layers = 0;   // the class behind it, over dimension 2, reading dimension 1
  int first_class = 0;      // of the next steps: another is another kind of step
  int decoder_class = 0;    // by how much its class is another: steps that begin alike
  int left_out_layers = 0;  // of the next steps; the optimizer has them
  std::int64_t width = 64;
  std::int64_t vocabulary = 300;
  std::int64_t heads = 0;              // > 0: explicit attention, quadratic in the length
  std::int64_t cast_bytes = 0;         // autocast: kept by a `full` layer, freed in the head
  std::int64_t last_extra_bytes = 0;   // left by the first layer of a class in backward
  std::int64_t first_extra_units = 0;  // outputs' sizes, left by the step's first layer likewise
  std::int64_t inventory_scale = 1;    // changes when the model drifts
  int accumulation = 1;                // micro-steps for each step of the optimizer
  int menu_steps = 0;                  // selective modes of both classes, at most 3
  bool promises = true;                // menus tell what they do, from the second step on
  bool offloads = false;               // true_costs has the mode
  bool holds_outputs = false;          // of a step until the next one's forward returns
  double peak_noise = 0;               // relative, uniform: of the measured peak only
  double pace_noise = 0;  // all times of a step: by one factor up to 1 + this, or over it
  std::uint64_t seed = 1;
};

// Deterministic for a seed. Knows the truth: `true_costs` is what a controller should learn.
class SyntheticModel {
 public:
  explicit SyntheticModel(const SyntheticSpec& spec) : spec_(spec), random_(spec.seed) {}

  [[nodiscard]] StepStructure structure() const;
  // What is known when the next step begins.
  [[nodiscard]] StepContext context(const ShapeKey& shape, Bytes budget_bytes) const;
  // Runs the step. At the budget the oldest layer that holds anything (kept, or selective) is
  // revoked; with none left the step counts as an overrun. Segments disturbed by a revocation are
  // left out, as the hook layer does.
  StepOutcome run(const StepContext& context, const StepDecision& decision);
  // `returning_bytes` is the caller's to fill in.
  [[nodiscard]] StepCosts true_costs(const ShapeKey& shape, bool gradients_present) const;
  // Base bytes of a step once the optimizer has its state.
  [[nodiscard]] Bytes settled_base() const;
  SyntheticSpec& spec() { return spec_; }

 private:
  using Deltas = std::vector<std::int64_t>;
  struct Frame;
  struct Run;

  [[nodiscard]] int layer_count() const { return spec_.encoder_layers + spec_.decoder_layers; }
  [[nodiscard]] bool decodes(int layer) const { return layer >= spec_.encoder_layers; }
  [[nodiscard]] std::uint16_t class_of(int layer) const {
    const int behind = decodes(layer) ? 1 + spec_.decoder_class : 0;
    return static_cast<std::uint16_t>(spec_.first_class + behind);
  }
  [[nodiscard]] int last_class() const { return spec_.first_class + spec_.decoder_class; }
  [[nodiscard]] bool is_last(int layer) const {
    return layer == spec_.encoder_layers - 1 || layer == layer_count() - 1;
  }
  [[nodiscard]] std::int64_t unit(const ShapeKey& shape, int layer) const;
  [[nodiscard]] std::int64_t layer_parameters() const { return 4 * 12 * spec_.width * spec_.width; }
  [[nodiscard]] std::int64_t parameters() const;
  [[nodiscard]] Deltas inventory(const ShapeKey& shape, int layer) const;
  [[nodiscard]] Deltas gap(const ShapeKey& shape, int layer) const;
  [[nodiscard]] Deltas forward(const ShapeKey& shape, int layer, Mode mode) const;
  [[nodiscard]] Deltas recompute(const ShapeKey& shape, int layer) const;
  // What of its inventory a selective mode drops.
  [[nodiscard]] Deltas dropped(const ShapeKey& shape, int layer, Mode mode) const;
  [[nodiscard]] double extra_seconds(const ShapeKey& shape, int layer, Mode mode) const;
  static double share_done_again(Mode selective);
  void add_promises(int layer, StepStructure::Menu& menu) const;
  [[nodiscard]] Deltas backward(const ShapeKey& shape, int layer, Mode mode, bool gradients) const;
  [[nodiscard]] std::vector<Frame> frames_of(const ShapeKey& shape, const Plan& plan) const;
  [[nodiscard]] Deltas joint_backward(const ShapeKey& shape, int layer, const Run& run,
                                      bool gradients) const;
  void tell_peak_and_times(const StepDecision& decision, Run& run);
  [[nodiscard]] Deltas head(const ShapeKey& shape, bool gradients) const;
  void play_head(const Deltas& deltas, std::uint8_t variant, Run& run);
  [[nodiscard]] Deltas epilogue(const ShapeKey& shape, bool gradients) const;
  [[nodiscard]] Deltas optimizer(const ShapeKey& shape, bool steps, bool first) const;
  [[nodiscard]] double forward_seconds(const ShapeKey& shape, int layer) const;

  SyntheticSpec spec_;
  std::mt19937_64 random_;
  std::int64_t micro_step_ = 0;
  bool optimizer_has_state_ = false;
  std::int64_t returning_bytes_ = 0;
  ShapeKey first_shape_;  // of the steps that ran
};

}  // namespace pudica::testing
