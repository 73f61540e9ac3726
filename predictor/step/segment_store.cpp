#include "predictor/step/segment_store.h"

#include <algorithm>
#include <cmath>

namespace pudica {
namespace {

// An optimizer that leaves bytes behind this often in a row does so always.
constexpr std::int32_t kMaxSkippedOptimizers = 3;

// Of the step, which its segments are keyed by.
std::uint8_t kind_of(const StepOutcome& outcome) {
  const auto found = std::ranges::find_if(
      outcome.segments, [](const SegmentObservation& item) { return item.key.is_of_kind(); });
  return found == outcome.segments.end() ? std::uint8_t{0} : found->key.step_kind();
}

}  // namespace

SegmentKey normalized(SegmentKey key) {
  if (key.kind == SegmentKind::kRecompute) {
    // What a recompute allocates does not depend on where in the chain the layer stands.
    key.variant = 0;
    if (key.mode == Mode::keep()) key.mode = Mode::full();
  }
  return key;
}

SegmentKey early_free(SegmentKey key) {
  key.variant |= SegmentKey::kEarlyFree;
  return key;
}

SegmentKey held_output(std::uint16_t layer_class, Mode mode) {
  return {SegmentKind::kHeldOutput, layer_class, mode, 0};
}

SegmentKey released(std::uint16_t layer_class, Mode mode, std::uint8_t variant) {
  return {SegmentKind::kReleased, layer_class, mode, variant};
}

SegmentStore::SegmentStore(PredictorFactory factory)
    : factory_(std::move(factory)), predictor_(factory_()), relative_times_(factory_) {}

// A layer that was to run `full` and was kept: its class refuses.
void SegmentStore::note_refusal(const SegmentObservation& item, const Plan* plan) {
  if (item.key.kind != SegmentKind::kForward || item.layer < 0 || plan == nullptr) return;
  const auto layer = static_cast<std::size_t>(item.layer);
  if (layer >= plan->modes.size() || plan->modes[layer] != Mode::full()) return;
  if (item.key.mode == Mode::keep()) refusing_.insert(item.key.layer_class);
}

void SegmentStore::take(const SegmentKey& key, const ShapeKey& shape, const SegmentSample& sample,
                        double forget_above, ObserveReport& report) {
  if (forget_above > 0 && deviation(key, shape, sample) > forget_above) {
    forget(key);
    ++report.forgotten;
  }
  if (shows_that_first_was_once(key, shape, sample)) forget(key);
  give(key, shape, sample);
  ++report.observed;
}

// What a process allocates once and keeps (a library's workspaces) falls into some segments of its
// first step: they left more than the same segments of a batch that is no smaller.
bool SegmentStore::shows_that_first_was_once(const SegmentKey& key, const ShapeKey& shape,
                                             const SegmentSample& sample) const {
  const bool grows = key.kind == SegmentKind::kForward || key.kind == SegmentKind::kHead;
  const auto only = only_shape_.find(key);
  if (!grows || !of_first_step_.contains(key) || only == only_shape_.end()) return false;
  if (!shape.covers(only->second)) return false;
  const auto first = predictor_->predict(key, only->second);
  return first && sample.net_bytes + kNoticeableBytes < first->net_bytes;
}

// Under its own key as it is behind a layer that holds its output, which every sample tells; as it
// is behind another, where it ran behind one.
void SegmentStore::take_observation(const SegmentKey& key, const SegmentObservation& item,
                                    const ShapeKey& shape, double forget_above,
                                    ObserveReport& report) {
  SegmentSample sample = item.behind_holder ? *item.behind_holder : item.sample;
  // Of a layer: together with those of its like.
  sample.seconds = item.key.kind == SegmentKind::kHead ? item.sample.seconds : 0;
  take(key, shape, sample, forget_above, report);
  if (item.behind_holder) {
    SegmentSample early = item.sample;
    early.seconds = 0;
    take(early_free(key), shape, early, forget_above, report);
  }
  const auto take_bytes = [&](const SegmentKey& of, std::int64_t bytes) {
    take(of, shape, {{bytes}, bytes, bytes, 0}, forget_above, report);
  };
  const std::int64_t held = item.held_output_bytes;
  if (held > 0) take_bytes(held_output(key.layer_class, key.mode), held);
  if (!item.released_bytes || key.kind != SegmentKind::kForward) return;
  take_bytes(released(key.layer_class, key.mode, key.variant), *item.released_bytes);
}

ObserveReport SegmentStore::observe(const StepOutcome& outcome, double forget_above) {
  ObserveReport report;
  const ShapeKey& shape = outcome.context.shape;
  const bool is_first = only_shape_.empty() && predictor_->segments().empty();
  for (const SegmentObservation& item : outcome.segments) {
    const SegmentKey key = normalized(item.key);
    note_refusal(item, outcome.plan.get());
    if (key.kind == SegmentKind::kOptimizer) {
      pending_optimizer_ = PendingOptimizer{key, outcome.context, item.sample};
      if (outcome.context.waiting_forwards > 0) {
        pending_optimizer_->context.base_bytes = own_base_bytes_;
      }
    } else {
      take_observation(key, item, shape, forget_above, report);
    }
  }
  for (const SegmentKey& gap : empty_gaps(outcome)) give(gap, shape, {});
  if (is_first) {
    const std::vector<SegmentKey> seen = predictor_->segments();
    of_first_step_ = {seen.begin(), seen.end()};
  }
  observe_times_of(outcome);
  return report;
}

// Gaps in which something was allocated in another step, between layers that were measured: what
// happens once (a cache that fills) must not be expected for ever. Their epilogues likewise.
std::vector<SegmentKey> SegmentStore::empty_gaps(const StepOutcome& outcome) const {
  std::vector<SegmentKey> empty;
  std::set<std::pair<SegmentKind, std::int32_t>> layers;
  for (const SegmentObservation& item : outcome.segments) layers.emplace(item.key.kind, item.layer);
  const auto present = outcome.context.gradients_present ? SegmentKey::kGradientsPresent : 0;
  const std::uint8_t step_kind = kind_of(outcome);
  for (const SegmentKey& key : predictor_->segments()) {
    const auto index = static_cast<std::int32_t>(key.place());
    const bool epilogue = key.kind == SegmentKind::kEpilogue;
    if ((key.kind != SegmentKind::kGap && !epilogue) || index == 0) continue;
    if ((key.variant & SegmentKey::kEarlyFree) != 0) continue;  // told where there is any
    if (key.step_kind() != step_kind) continue;
    if (epilogue && key.variant != present) continue;
    const SegmentKind around = epilogue ? SegmentKind::kBackward : SegmentKind::kForward;
    if (!layers.contains({around, index}) || !layers.contains({around, index - 1})) continue;
    const SegmentKey here = key.with_casts(outcome.context.casts_present);
    const bool was_filled = std::ranges::find(outcome.segments, here, &SegmentObservation::key) !=
                            outcome.segments.end();
    const bool is_known = std::ranges::find(empty, here) != empty.end();  // of the other sort
    if (!was_filled && !is_known) empty.push_back(here);
  }
  return empty;
}

void SegmentStore::settle(const StepContext& next, std::optional<Bytes> first_base_bytes) {
  accumulates_ = accumulates_ || next.gradients_present;
  const bool is_first = next.waiting_forwards == 0;
  const Bytes begun = is_first ? next.base_bytes : first_base_bytes.value_or(next.base_bytes);
  if (is_first || first_base_bytes) own_base_bytes_ = begun;
  if (!pending_optimizer_) return;
  const PendingOptimizer pending = *std::exchange(pending_optimizer_, std::nullopt);
  const std::int64_t peak = pending.sample.peak_bytes;
  std::int64_t left = (begun - pending.context.base_bytes).count();
  // By then the casts are gone, which hides what was left; the sample itself ends before.
  if (pending.context.casts_present) left = std::max(left, pending.sample.net_bytes);
  if (left > 0 && left >= peak / 4 && skipped_optimizers_ < kMaxSkippedOptimizers) {
    ++skipped_optimizers_;
    return;
  }
  skipped_optimizers_ = 0;
  if (const auto known = predict(pending.key, pending.context.shape)) {
    const std::int64_t predicted = known->estimate.peak_bytes;
    if (peak < predicted / 2 && accumulates_) return;
    // So different is not the same optimizer at work at another shape.
    if (peak < predicted / 2 || predicted < peak / 2) forget(pending.key);
  }
  give(pending.key, pending.context.shape, pending.sample);
}

double SegmentStore::deviation(const SegmentKey& key, const ShapeKey& shape,
                               const SegmentSample& sample) const {
  const auto known = predict(key, shape);
  if (!known || !known->fit) return 0;
  const auto peak = static_cast<double>(sample.peak_bytes);
  const double peak_off = std::abs(peak - static_cast<double>(known->estimate.peak_bytes));
  const double net_off = std::abs(static_cast<double>(sample.net_bytes) -
                                  static_cast<double>(known->estimate.net_bytes));
  const double off = std::max(peak_off, net_off);
  constexpr auto noticeable = static_cast<double>(kNoticeableBytes);
  if (off < noticeable) return 0;
  const double scale =
      std::max({peak, std::abs(static_cast<double>(sample.net_bytes)), noticeable});
  return off / scale;
}

std::optional<StoredEstimate> SegmentStore::predict(const SegmentKey& segment,
                                                    const ShapeKey& shape) const {
  return memo_.get(segment, shape, [&] { return predicted(segment, shape); });
}

std::optional<StoredEstimate> SegmentStore::predicted(const SegmentKey& segment,
                                                      const ShapeKey& shape) const {
  const auto only = only_shape_.find(segment);
  // The optimizer's work does not depend on the batch: one sample holds for every shape.
  const bool constant = segment.kind == SegmentKind::kOptimizer && only != only_shape_.end();
  const ShapeKey& asked = constant ? only->second : shape;
  const auto estimate = predictor_->predict(segment, asked);
  if (!estimate) return std::nullopt;
  StoredEstimate out{*estimate, estimate->basis != PredictionBasis::kScaled};
  if (const auto time = relative_times_.predict(segment, asked)) {
    out.estimate.seconds = time->seconds;
    out.estimate.seconds_sigma = time->sigma_seconds;
  } else {
    out.estimate.seconds *= relative_times_.pace();
    out.estimate.seconds_sigma *= relative_times_.pace();
  }
  if (only != only_shape_.end() && only->second == asked) {
    out.fit = true;
    out.estimate.identified = true;
    out.estimate.net_upper_bytes = out.estimate.net_bytes;
    out.estimate.peak_upper_bytes = out.estimate.peak_bytes;
  }
  return out;
}

std::optional<StoredEstimate> SegmentStore::predict_with_unread(const SegmentKey& segment,
                                                                const ShapeKey& shape) const {
  auto out = predict(segment, shape);
  const auto above = out ? predict(early_free(segment), shape) : std::nullopt;
  if (!above) return out;
  // Known at one shape it is scaled, and no reason to go on learning: steps that learn keep most
  // layers, and there it is not seen again.
  SegmentEstimate& estimate = out->estimate;
  estimate.peak_bytes = std::max(estimate.peak_bytes, above->estimate.peak_bytes);
  estimate.peak_upper_bytes = std::max(estimate.peak_upper_bytes, above->estimate.peak_upper_bytes);
  return out;
}

SegmentKey SegmentStore::as_known(const SegmentKey& segment, bool casts_present) const {
  const SegmentKey asked = segment.with_casts(casts_present);
  if (predictor_->distinct_shapes(asked) > 0) return asked;
  const SegmentKey other = segment.with_casts(!casts_present);
  return predictor_->distinct_shapes(other) > 0 ? other : asked;
}

std::optional<std::int64_t> SegmentStore::released_bytes(std::uint16_t layer_class, Mode mode,
                                                         std::uint8_t variant,
                                                         const ShapeKey& shape,
                                                         bool casts_present) const {
  const SegmentKey key = as_known(released(layer_class, mode, variant), casts_present);
  const auto known = predict(key, shape);
  if (!known) return std::nullopt;
  std::int64_t bytes = known->estimate.net_bytes;
  // Casts of weights are the same at every shape, keys and values are not.
  if (const auto only = only_shape(key); only && !known->fit && shape.covers(*only)) {
    bytes = std::min(bytes, predictor_->predict(key, *only)->net_bytes);
  }
  return std::max<std::int64_t>(0, bytes);
}

std::optional<ShapeKey> SegmentStore::only_shape(const SegmentKey& segment) const {
  const auto only = only_shape_.find(segment);
  return only == only_shape_.end() ? std::nullopt : std::optional(only->second);
}

const std::vector<Mode>& SegmentStore::modes(std::uint16_t layer_class) const {
  static const std::vector<Mode> none;
  const auto found = modes_.find(layer_class);
  return found == modes_.end() ? none : found->second;
}

const std::vector<std::uint8_t>& SegmentStore::variants(std::uint16_t layer_class,
                                                        Mode mode) const {
  static const std::vector<std::uint8_t> none;
  const auto found = variants_.find({layer_class, mode});
  return found == variants_.end() ? none : found->second;
}

void SegmentStore::forget(const SegmentKey& key) {
  memo_.clear();
  predictor_->forget(key);
  relative_times_.forget(key);
  only_shape_.erase(key);
  of_first_step_.erase(key);
}

void SegmentStore::give(const SegmentKey& key, const ShapeKey& shape, const SegmentSample& sample) {
  memo_.clear();
  const bool known = predictor_->distinct_shapes(key) > 0;
  predictor_->observe(key, shape, sample);
  const auto only = only_shape_.find(key);
  if (!known) {
    only_shape_.insert_or_assign(key, shape);
    refresh_index();
  } else if (only != only_shape_.end() && !(only->second == shape)) {
    only_shape_.erase(only);
  }
}

void SegmentStore::refresh_index() {
  modes_.clear();
  variants_.clear();
  for (const SegmentKey& key : predictor_->segments()) {
    const bool early = (key.variant & SegmentKey::kEarlyFree) != 0;
    if (key.kind != SegmentKind::kForward || early) continue;
    auto& modes = modes_[key.layer_class];
    if (std::ranges::find(modes, key.mode) == modes.end()) modes.push_back(key.mode);
    auto& variants = variants_[{key.layer_class, key.mode}];
    const std::uint8_t variant = key.with_casts(false).variant;
    if (std::ranges::find(variants, variant) == variants.end()) variants.push_back(variant);
  }
  for (auto& [layer_class, modes] : modes_) std::ranges::sort(modes);
}

void SegmentStore::forget_class(std::uint16_t layer_class) {
  for (const SegmentKey& key : predictor_->segments()) {
    const bool of_layer = key.kind == SegmentKind::kForward || key.kind == SegmentKind::kBackward ||
                          key.kind == SegmentKind::kRecompute ||
                          key.kind == SegmentKind::kHeldOutput ||
                          key.kind == SegmentKind::kReleased;
    if (of_layer && key.layer_class == layer_class) forget(key);
  }
  relative_times_.forget_class(layer_class);
  memo_.clear();
  refusing_.erase(layer_class);
  refresh_index();
}

void SegmentStore::forget_backwards(std::uint16_t layer_class) {
  for (const SegmentKey& key : predictor_->segments()) {
    if (key.kind == SegmentKind::kBackward && key.layer_class == layer_class) forget(key);
  }
}

void SegmentStore::forget_selective(std::uint16_t layer_class) {
  for (const SegmentKey& key : predictor_->segments()) {
    const bool of_class = key.layer_class == layer_class && key.kind != SegmentKind::kGap;
    if (of_class && key.mode.kind == Mode::Kind::kSelective) forget(key);
  }
  refresh_index();
}

void SegmentStore::forget_gaps_from(std::uint8_t step_kind, std::size_t index) {
  for (const SegmentKey& key : predictor_->segments()) {
    const bool epilogue = key.kind == SegmentKind::kEpilogue && key.place() > 0;
    if (key.kind != SegmentKind::kGap && !epilogue) continue;
    if (key.place() > SegmentKey::kMostLayers) continue;
    if (key.step_kind() == step_kind && key.place() >= index) forget(key);
  }
}

void SegmentStore::forget_kind(std::uint8_t step_kind) {
  for (const SegmentKey& key : predictor_->segments()) {
    if (key.is_of_kind() && key.step_kind() == step_kind) forget(key);
  }
}

}  // namespace pudica
