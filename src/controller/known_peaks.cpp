#include "controller/known_peaks.h"

#include <algorithm>

namespace pudica {

const KnownPeaks::Known* KnownPeaks::find(const StepContext& context, const Plan& plan) const {
  const auto found = std::ranges::find_if(known_, [&](const Known& known) {
    return known.shape == context.shape && known.gradients_present == context.gradients_present &&
           known.casts_present == context.casts_present &&
           known.returning_bytes == context.returning_bytes && known.modes == plan.modes &&
           known.joined == plan.joined;
  });
  return found == known_.end() ? nullptr : &*found;
}

KnownPeaks::Known& KnownPeaks::at(const StepContext& context, const Plan& plan) {
  const Known* const known = find(context, plan);
  if (known != nullptr) return known_[static_cast<std::size_t>(known - &known_.front())];
  if (known_.size() >= kMostPlans) known_.erase(known_.begin());
  Known& fresh = known_.emplace_back();
  fresh.shape = context.shape;
  fresh.gradients_present = context.gradients_present;
  fresh.casts_present = context.casts_present;
  fresh.returning_bytes = context.returning_bytes;
  fresh.modes = plan.modes;
  fresh.joined = plan.joined;
  return fresh;
}

void KnownPeaks::note(const StepContext& context, const Plan& plan, std::int64_t peak_bytes) {
  Known& known = at(context, plan);
  known.least_bytes = 0;
  known.peaks.push_back(peak_bytes);
  if (known.peaks.size() > kMostRuns) known.peaks.pop_front();
}

void KnownPeaks::note_revoked(const StepContext& context, const Plan& plan,
                              std::int64_t least_bytes) {
  Known& known = at(context, plan);
  known.least_bytes = std::max(known.least_bytes, least_bytes);
}

std::optional<std::int64_t> KnownPeaks::peak(const StepContext& context, const Plan& plan) const {
  const Known* const known = find(context, plan);
  if (known == nullptr || known->peaks.empty()) return std::nullopt;
  return std::ranges::max(known->peaks);
}

std::int64_t KnownPeaks::least(const StepContext& context, const Plan& plan) const {
  const Known* const known = find(context, plan);
  if (known == nullptr) return 0;
  return known->peaks.empty() ? known->least_bytes
                              : std::max(known->least_bytes, std::ranges::max(known->peaks));
}

}  // namespace pudica
