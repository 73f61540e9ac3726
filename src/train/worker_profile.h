// What a step costs at a shape, measured beforehand with every layer kept and with every layer
// `full`: for the budget's ends and for `static`.
#pragma once

#include <map>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/shape_key.h"
#include "train/worker_run.h"

namespace pudica::train {

struct ShapeProfile {
  Bytes base_bytes{0};
  Bytes keep_all_peak_bytes{0};
  Bytes full_peak_bytes{0};
  StepCosts costs;

  // The least peak that any plan of the menu reaches.
  [[nodiscard]] Bytes menu_floor_bytes() const;
};

// The distinct shapes of a run, each with the first batch that has it.
std::map<ShapeKey, std::int64_t> distinct_shapes(const RunData& data);

// Those that no other distinct shape covers: the largest peak of the run is at one of them.
std::map<ShapeKey, std::int64_t> largest_shapes(const RunData& data);

// Trains a throw-away model on the given batches, unlimited, and measures. Errors: as start_run,
// kUnavailable where a step showed no chain of layers.
Result<std::map<ShapeKey, ShapeProfile>> profile_shapes(
    const TrainOptions& options, const RunData& data,
    const std::map<ShapeKey, std::int64_t>& shapes);

}  // namespace pudica::train
