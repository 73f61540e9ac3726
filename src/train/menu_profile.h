// What a step costs at the shapes of a run with every layer in each mode of the menu: what `oracle`
// plans on.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "pudica/mode.h"
#include "pudica/peak_model.h"
#include "pudica/predictor.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"
#include "train/worker_run.h"

namespace pudica::train {

struct MenuProfileOptions {
  std::vector<Mode::Kind> menu;  // kinds to measure, as is_on_menu() reads it
  MenuRules menu_rules;
  OffloadOptions offload;
  PredictorOptions predictor;
};

// How many of a run's shapes are measured at all, and how many of these in every mode and several
// times. So that a profile stays short: bytes at the others follow from those to the byte, and
// times are a line through all.
inline constexpr std::size_t kMostProfiledShapes = 64;
inline constexpr std::size_t kShapesWithMenu = 5;
inline constexpr int kProfileRounds = 3;

// Trains a throw-away model on the given batches, unlimited, and measures: each mode in turn, in
// kProfileRounds rounds, of which the median of each segment's seconds counts. Times that a device
// tells late are all taken, those of the first steps too. Errors: as start_run, kUnavailable where
// a step showed no chain of layers.
Result<std::map<ShapeKey, StepCosts>> profile_menu(const TrainOptions& options, const RunData& data,
                                                   const std::map<ShapeKey, std::int64_t>& shapes,
                                                   const MenuProfileOptions& profile);

}  // namespace pudica::train
