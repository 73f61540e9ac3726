#include "cli/recorded_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "inspect/recomputation.h"

namespace pudica::cli {
namespace {

std::optional<std::uint8_t> index_of(const LayerCosts& layer, Mode mode) {
  constexpr std::size_t kMaxModes = 255;
  const auto found = std::ranges::find(layer.modes, mode, &LayerModeCosts::mode);
  const auto index = static_cast<std::size_t>(found - layer.modes.begin());
  if (found == layer.modes.end() || index >= kMaxModes) return std::nullopt;
  return static_cast<std::uint8_t>(index);
}

// Every layer in `mode` where that was measured, else in the one that comes first or last.
std::vector<std::uint8_t> everywhere(const StepCosts& costs, Mode mode) {
  std::vector<std::uint8_t> choice;
  for (const LayerCosts& layer : costs.layers) {
    const std::size_t other = mode == Mode::keep() ? 0 : layer.modes.size() - 1;
    choice.push_back(index_of(layer, mode).value_or(static_cast<std::uint8_t>(other)));
  }
  return choice;
}

StepOutcome outcome_of(const StepRecord& record) {
  StepOutcome outcome;
  outcome.context = {record.key, record.profiles->base_bytes, record.budget_bytes,
                     record.profiles->gradients_present};
  outcome.context.casts_present = record.profiles->casts_present;
  outcome.peak_bytes = record.measured_bytes;
  outcome.segments = record.profiles->segments;
  return outcome;
}

}  // namespace

std::vector<Mode> modes_run(const StepRecord& record) {
  if (!record.profiles) return record.modes;
  std::vector<Mode> modes = record.modes;
  modes.resize(std::max(modes.size(), record.profiles->structure.layers.size()), Mode::keep());
  for (const SegmentObservation& item : record.profiles->segments) {
    const auto layer = static_cast<std::size_t>(item.layer);
    if (item.key.kind != SegmentKind::kForward || item.layer < 0 || layer >= modes.size()) continue;
    modes[layer] = item.key.mode;
  }
  return modes;
}

void StepStart::follow(const StepRecord& record) {
  if (record.profiles) {
    base_bytes = record.profiles->base_bytes;
    gradients_present = record.profiles->gradients_present;
    casts_present = record.profiles->casts_present;
  } else if (record.base_bytes) {
    base_bytes = *record.base_bytes;
    gradients_present = record.gradients_present.value_or(gradients_present);
    casts_present = record.casts_present;
  } else {
    return;
  }
  known = true;
}

RecordedModel::RecordedModel(const ControllerOptions& options) : learner_(options.predictor) {}

void RecordedModel::observe(const StepRecord& record) {
  ++steps_;
  start_.follow(record);
  base_bytes_ = std::max(base_bytes_, start_.base_bytes);
  learner_.settle({record.key, start_.base_bytes, record.budget_bytes, start_.gradients_present});
  if (shapes_.size() < kMaxShapes) {
    shapes_.insert(record.key);
  } else {
    too_many_shapes_ = too_many_shapes_ || !shapes_.contains(record.key);
  }
  if (!record.profiles || record.profiles->segments.empty()) return;
  ++profiles_;
  structure_ = record.profiles->structure;
  learner_.observe(outcome_of(record));
}

Result<StepModel> RecordedModel::at(const ShapeKey& shape, bool gradients_present,
                                    bool casts_present) const {
  if (structure_.layers.empty()) {
    return Error{ErrorCode::kUnavailable,
                 "the record holds no profile of a learning step, expected at least two"};
  }
  CostsRequest request;
  request.shape = shape;
  request.gradients_present = gradients_present;
  request.casts_present = casts_present;
  request.lenient = true;
  return learner_.costs(structure_, request);
}

Result<StepCosts> RecordedModel::costs(const ShapeKey& shape, bool gradients_present) const {
  auto model = at(shape, gradients_present);
  if (!model) return model.error();
  return std::move(model->point);
}

Result<RecordedModel::Range> RecordedModel::range() const {
  Range range;
  for (const ShapeKey& shape : shapes_) {
    const auto at_shape = costs(shape, start_.gradients_present);
    if (!at_shape) return at_shape.error().with_context("shape " + shape.to_string());
    const auto peak = [&](Mode mode) {
      return base_bytes_ + Bytes(step_peak_bytes(*at_shape, everywhere(*at_shape, mode)));
    };
    const Bytes keep_all = peak(Mode::keep());
    if (keep_all > range.keep_all_bytes) {
      range.keep_all_bytes = keep_all;
      range.longest = shape;
    }
    range.floor_bytes = std::max(range.floor_bytes, peak(Mode::full()));
  }
  return range;
}

bool is_sure(const StepModel& model, const std::vector<std::uint8_t>& choice,
             const std::vector<std::uint8_t>& joined) {
  constexpr std::int64_t kSureShare = 100;  // a guess that can be wrong by more is none
  if (!model.fit) return false;
  if (model.identified) return true;
  const std::int64_t point = step_peak_bytes(model.point, choice, joined);
  return step_peak_bytes(model.upper, choice, joined) - point <= point / kSureShare;
}

std::optional<std::vector<std::uint8_t>> choice_of(const StepCosts& costs,
                                                   const std::vector<Mode>& modes) {
  if (modes.size() != costs.layers.size()) return std::nullopt;
  std::vector<std::uint8_t> choice;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const auto index = index_of(costs.layers[i], modes[i]);
    if (!index) return std::nullopt;
    choice.push_back(*index);
  }
  return choice;
}

}  // namespace pudica::cli
