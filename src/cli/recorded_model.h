// What the recorded steps taught of the model that ran: its costs at any shape.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "inspect/json.h"
#include "pudica/controller.h"
#include "pudica/peak_model.h"
#include "pudica/result.h"
#include "pudica/step_learner.h"

namespace pudica::cli {

// The modes that the layers ran in: those of the forward segments where they were measured, else
// those planned; empty where neither is known.
std::vector<Mode> modes_run(const StepRecord& record);

// Follows which base bytes, gradients and casts a step begins with: those told last.
struct StepStart {
  Bytes base_bytes{0};
  bool gradients_present = false;
  bool casts_present = false;
  bool known = false;  // a record has told them
  void follow(const StepRecord& record);
};

// Learns from every profile of a record. Not thread-safe.
class RecordedModel {
 public:
  explicit RecordedModel(const ControllerOptions& options);

  void observe(const StepRecord& record);

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::int64_t profiles() const { return profiles_; }
  [[nodiscard]] const StepStructure& structure() const { return structure_; }
  [[nodiscard]] Bytes base_bytes() const { return base_bytes_; }  // largest measured
  // Shapes seen, at most kMaxShapes of them.
  [[nodiscard]] const std::set<ShapeKey>& shapes() const { return shapes_; }
  [[nodiscard]] bool all_shapes() const { return !too_many_shapes_; }
  static constexpr std::size_t kMaxShapes = 16384;

  // Errors: kUnavailable, naming what was not measured.
  [[nodiscard]] Result<StepModel> at(const ShapeKey& shape, bool gradients_present,
                                     bool casts_present = false) const;
  [[nodiscard]] Result<StepCosts> costs(const ShapeKey& shape, bool gradients_present) const;

  // The largest peak over the shapes with every layer in its cheapest mode to keep (`full` where it
  // is known), and with every layer kept. Errors: kUnavailable.
  struct Range {
    Bytes floor_bytes{0};
    Bytes keep_all_bytes{0};
    ShapeKey longest;  // where keeping all needs most
  };
  [[nodiscard]] Result<Range> range() const;

 private:
  StepLearner learner_;
  StepStructure structure_;
  std::set<ShapeKey> shapes_;
  StepStart start_;
  Bytes base_bytes_{0};
  std::int64_t steps_ = 0;
  std::int64_t profiles_ = 0;
  bool too_many_shapes_ = false;
};

// Whether the peak of these modes at the model's shape follows from what was measured: each of its
// segments was seen at two shapes or at this one, and what they leave open is within a hundredth.
bool is_sure(const StepModel& model, const std::vector<std::uint8_t>& choice,
             const std::vector<std::uint8_t>& joined);

// The index of each mode in the costs; nullopt where a layer's mode was never measured.
std::optional<std::vector<std::uint8_t>> choice_of(const StepCosts& costs,
                                                   const std::vector<Mode>& modes);

}  // namespace pudica::cli
