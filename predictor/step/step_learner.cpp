#include "pudica/step_learner.h"

#include <algorithm>
#include <utility>

#include "predictor/step/class_model.h"
#include "predictor/step/segment_store.h"
#include "predictor/step/step_model.h"

namespace pudica {

StepLearner::StepLearner(const PredictorOptions& options)
    : StepLearner([options] { return make_online_predictor(options); }) {}

StepLearner::StepLearner(PredictorFactory factory)
    : factory_(std::move(factory)), store_(std::make_unique<SegmentStore>(factory_)) {}

StepLearner::~StepLearner() = default;
StepLearner::StepLearner(StepLearner&& other) noexcept = default;
StepLearner& StepLearner::operator=(StepLearner&& other) noexcept = default;

void StepLearner::settle(const StepContext& next, std::optional<Bytes> first_base_bytes) {
  store_->settle(next, first_base_bytes);
}

ObserveReport StepLearner::observe(const StepOutcome& outcome, double forget_above) {
  return store_->observe(outcome, forget_above);
}

void StepLearner::observe_times(const ShapeKey& shape, const std::vector<ForwardTime>& forwards,
                                const std::vector<RecomputeTime>& recomputes) {
  store_->observe_times(shape, forwards, recomputes);
}

void StepLearner::observe_times(const std::vector<SegmentTime>& times) {
  store_->observe_times(times);
}

Result<StepModel> StepLearner::costs(const StepStructure& structure,
                                     const CostsRequest& request) const {
  return build_step_model(*store_, structure, request);
}

std::optional<StoredEstimate> StepLearner::segment(const SegmentKey& key,
                                                   const ShapeKey& shape) const {
  return store_->predict(normalized(key), shape);
}

std::int64_t StepLearner::shapes_measured(std::uint16_t layer_class, std::uint8_t variant,
                                          Mode mode, bool gradients_present) const {
  std::int64_t most = 0;
  for (const std::uint8_t seen : store_->variants(layer_class, mode)) {
    if (SegmentKey::group_of(seen) != SegmentKey::group_of(variant)) continue;
    auto backward = seen;
    if (gradients_present) backward |= SegmentKey::kGradientsPresent;
    const SegmentKey cast{SegmentKind::kForward, layer_class, mode, seen};
    const std::int64_t forwards =
        std::max(store_->distinct_shapes(cast), store_->distinct_shapes(cast.with_casts(true)));
    const SegmentKey backward_key{SegmentKind::kBackward, layer_class, mode, backward};
    most = std::max(most, std::min(forwards, store_->distinct_shapes(backward_key)));
  }
  return most;
}

bool StepLearner::refuses_full(std::uint16_t layer_class) const {
  return store_->refuses_full(layer_class);
}

std::vector<LearnedQuantity> StepLearner::describe() const {
  return store_->predictor().describe();
}

std::uint64_t StepLearner::version() const { return versions_before_ + store_->version(); }

void StepLearner::forget_class(std::uint16_t layer_class) { store_->forget_class(layer_class); }

void StepLearner::forget_backwards(std::uint16_t layer_class) {
  store_->forget_backwards(layer_class);
}

void StepLearner::forget_selective(std::uint16_t layer_class) {
  store_->forget_selective(layer_class);
}

void StepLearner::forget_gaps_from(std::uint8_t step_kind, std::size_t index) {
  store_->forget_gaps_from(step_kind, index);
}

void StepLearner::forget_kind(std::uint8_t step_kind) { store_->forget_kind(step_kind); }

void StepLearner::forget() { replace(std::make_unique<SegmentStore>(factory_)); }

std::string StepLearner::serialize() const { return store_->serialize(); }

Result<void> StepLearner::restore(const std::string& text) {
  auto fresh = std::make_unique<SegmentStore>(factory_);
  auto done = fresh->restore(text);
  if (done) replace(std::move(fresh));
  return done;
}

void StepLearner::replace(std::unique_ptr<SegmentStore> store) {
  versions_before_ = version() + 1;
  store_ = std::move(store);
}

}  // namespace pudica
