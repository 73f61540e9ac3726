#include "controller/spared_bytes.h"

#include <algorithm>

namespace pudica {

SparedBytes::SparedBytes(const PredictorOptions& options)
    : predictor_(make_online_predictor(options)) {}

const SparedBytes::Known* SparedBytes::find(const StepContext& context, const Plan& plan) const {
  const auto found = std::ranges::find_if(known_, [&](const Known& known) {
    return known.gradients_present == context.gradients_present &&
           known.casts_present == context.casts_present && known.modes == plan.modes;
  });
  return found == known_.end() ? nullptr : &*found;
}

void SparedBytes::note(const StepContext& context, const Plan& plan, std::int64_t spared_bytes) {
  const Known* known = find(context, plan);
  if (known == nullptr) {
    if (known_.size() >= kMostPlans) {
      predictor_->forget(known_.front().key);
      known_.erase(known_.begin());
    }
    SegmentKey key;
    key.layer_class = next_++;  // comes round after 65,536 plans, of which kMostPlans are known
    known_.push_back({plan.modes, context.gradients_present, context.casts_present, key});
    known = &known_.back();
  }
  const std::int64_t bytes = std::max<std::int64_t>(0, spared_bytes);
  predictor_->observe(known->key, context.shape, {{}, bytes, bytes, 0});
}

Bytes SparedBytes::of(const StepContext& context, const Plan& plan) const {
  const Known* const known = find(context, plan);
  if (known == nullptr) return Bytes(0);
  const auto estimate = predictor_->predict(known->key, context.shape);
  if (!estimate || !estimate->identified) return Bytes(0);
  const std::int64_t open =
      std::max<std::int64_t>(0, estimate->peak_upper_bytes - estimate->peak_bytes);
  const std::int64_t most = std::max<std::int64_t>(0, plan.predicted_peak_bytes.count());
  return Bytes(std::clamp<std::int64_t>(estimate->peak_bytes - open, 0, most));
}

void SparedBytes::clear() {
  for (const Known& known : known_) predictor_->forget(known.key);
  known_.clear();
}

}  // namespace pudica
