// ModelView: what a learned state says of a shape: the answers of `explain` and `estimate`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/explanation.h"
#include "inspect/learned_shape.h"
#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/planner.h"
#include "pudica/result.h"

namespace pudica::inspect {

struct Estimate {
  ShapeKey key;
  Bytes budget_bytes{0};  // 0: not limited
  bool fits = false;
  bool identified = false;
  Bytes keep_all_peak_bytes{0};
  Bytes floor_peak_bytes{0};
  Bytes predicted_peak_bytes{0};
  Bytes upper_peak_bytes{0};  // at most: of the plan, or of the one that may take its place
  bool settled = false;       // more learning leaves the plan as it is
  // The plan is one that the run has; nullopt: it would be made now.
  std::optional<std::uint64_t> plan_id;
  std::optional<Bytes> measured_peak_bytes;   // of that plan's last step
  std::optional<std::uint64_t> learned_step;  // the run's, of what the answer rests on
  double extra_seconds = 0;
  std::map<Mode, std::int64_t> modes;     // layers in each
  std::vector<FrontierPoint> frontier;    // absolute peak bytes, extra nanoseconds
  std::optional<FrontierPoint> all_full;  // every layer `full`, none joined; nullopt: not known
};

// A plan that the run has for a shape under its budget, as its snapshot tells it.
struct HeldPlan {
  std::uint64_t id = 0;
  std::vector<Mode> modes;
  Bytes predicted_peak_bytes{0};
  std::optional<Bytes> measured_peak_bytes;
  double extra_seconds = 0;
};

// The estimate of a shape for which the run holds a plan: that plan is the one that is taken.
void take_held_plan(Estimate& estimate, const HeldPlan& plan);
// The explanation of that plan's modes: its peak is the one of the estimate.
void take_held_plan(Explanation& explanation, const HeldPlan& plan);

// The answer of GET /v1/runs/{id}/estimate. Never throws.
std::string to_json(const Estimate& estimate, std::string_view run);

struct ModelViewOptions {
  ControllerOptions controller;  // the run's own: its menu, above all
  // Live bytes when the run's steps begin; nullopt: as the state has them.
  std::optional<Bytes> base_bytes;
};

// Mostly a controller restored from text, never stepped: it plans as the one that wrote the text
// would at its next step. Movable; thread-safe.
class ModelView {
 public:
  // Errors: kCorrupt, and kInvalidArgument for another fingerprint.
  static Result<ModelView> from_state(const std::string& text, const std::string& fingerprint,
                                      const ModelViewOptions& options = {});

  // Of a controller that lives and learns: as it is now. Used by the controller's owner thread
  // only.
  static ModelView of(std::shared_ptr<Controller> controller);

  // Of the key's dimensions, in their order; empty: nothing was learned.
  [[nodiscard]] const DimensionNames& dimensions() const { return dimensions_; }
  [[nodiscard]] const StepStructure& structure() const { return structure_; }

  // Shapes are read by parse_shape(). A budget of 0 is no limit; below 0 is kInvalidArgument.
  // Errors: kInvalidArgument for the shape; kUnavailable naming what is not learned yet.
  [[nodiscard]] Result<Estimate> estimate(std::string_view shape_text, Bytes budget) const;
  [[nodiscard]] Result<Explanation> explain(std::string_view shape_text, Bytes budget) const;
  // Of a plan that the run has, instead of the one that would be made now: what it predicts, and
  // why its layers are as they are.
  [[nodiscard]] Result<Explanation> explain(std::string_view shape_text, Bytes budget,
                                            const std::vector<Mode>& modes) const;

 private:
  ModelView() = default;
  void describe(const ControllerSnapshot& snapshot);
  [[nodiscard]] Result<ShapeEstimate> estimated(std::string_view shape_text, Bytes budget) const;
  [[nodiscard]] Result<Explanation> explained(std::string_view shape_text, Bytes budget,
                                              const std::vector<Mode>* modes) const;

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  std::shared_ptr<Controller> controller_;  // guarded by mutex_: estimates share its buffers
  DimensionNames dimensions_;
  StepStructure structure_;
};

}  // namespace pudica::inspect
