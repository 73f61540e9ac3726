#include "controller/claims.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

namespace pudica {
namespace {

struct Difference {
  struct Sums {
    std::int64_t measured_bytes = 0;
    std::int64_t claimed_bytes = 0;
  };
  bool any = false;
  std::map<SegmentKey, Sums> sums;  // what is right says nothing for what is wrong

  [[nodiscard]] bool is_gross() const {
    return std::ranges::any_of(sums, [](const auto& entry) {
      const auto& [measured, claimed] = entry.second;
      return std::abs(measured - claimed) > kNoticeableBytes &&
             (measured > 2 * claimed || claimed > 2 * measured);
    });
  }
};

// Layers alone: what is beside them may happen in a process's first step only.
Difference difference_of(const StepLearner& learner, const StepOutcome& outcome, double fit_error) {
  Difference out;
  for (const SegmentObservation& item : outcome.segments) {
    const bool of_layer =
        item.key.kind == SegmentKind::kForward || item.key.kind == SegmentKind::kBackward;
    if (!of_layer) continue;
    const SegmentSample& sample = item.behind_holder ? *item.behind_holder : item.sample;
    const auto claim = learner.segment(item.key, outcome.context.shape);
    if (!claim || !claim->fit || !claim->estimate.identified) continue;
    const std::int64_t off = std::max(std::abs(sample.peak_bytes - claim->estimate.peak_bytes),
                                      std::abs(sample.net_bytes - claim->estimate.net_bytes));
    Difference::Sums& sums = out.sums[item.key];
    sums.measured_bytes += sample.peak_bytes;
    sums.claimed_bytes += claim->estimate.peak_bytes;
    out.any =
        out.any || (off > kNoticeableBytes &&
                    static_cast<double>(off) > fit_error * static_cast<double>(sample.peak_bytes));
  }
  return out;
}

}  // namespace

void Claims::begin() {
  *this = {};
  made_ = true;
  untouched_ = true;
}

bool Claims::is_seen(const StepStructure::Layer& layer, Mode mode) const {
  const auto known = seen_.find({layer.layer_class, layer.variant, mode});
  return known != seen_.end() && (known->second.measured || known->second.asked >= kMostTries);
}

bool Claims::doubts(const StepStructure& structure, const Plan& plan) const {
  if (!made_) return false;
  const std::size_t layers = std::min(structure.layers.size(), plan.modes.size());
  for (std::size_t i = 0; i < layers; ++i) {
    if (!is_seen(structure.layers[i], plan.modes[i])) return true;
  }
  return false;
}

bool Claims::doubts_basis(const StepStructure& structure, Mode mode) const {
  return made_ && std::ranges::any_of(structure.layers, [&](const StepStructure::Layer& layer) {
           return !is_seen(layer, mode);
         });
}

bool Claims::doubts_class(std::uint16_t layer_class, Mode mode) const {
  return made_ && std::ranges::none_of(seen_, [&](const auto& entry) {
           const auto& [of_class, variant, of_mode] = entry.first;
           return entry.second.measured && of_class == layer_class && of_mode == mode;
         });
}

Claims::Verdict Claims::judge(const StepLearner& learner, const StepStructure& structure,
                              const StepOutcome& outcome, std::optional<double> peak_error,
                              double fit_error) {
  const bool recorded = !outcome.segments.empty();
  if (!made_ || (!recorded && !peak_error)) return Verdict::kNothingSaid;
  const Difference difference = difference_of(learner, outcome, fit_error);
  const double off = std::abs(peak_error.value_or(0));
  if (peak_error && off <= fit_error) proofs_ = std::min(proofs_ + 1, kStepsOfProof);
  contradicted_ = difference.any || (off > kOtherPeak && proofs_ < kStepsOfProof);
  if (!contradicted_) {
    if (recorded) note_seen(structure, outcome);
    return Verdict::kAgrees;
  }
  const bool refuted = ++contradictions_ > kMostContradictions || difference.is_gross();
  return refuted ? Verdict::kRefuted : Verdict::kContradicts;
}

void Claims::note_seen(const StepStructure& structure, const StepOutcome& outcome) {
  for (const SegmentObservation& item : outcome.segments) {
    if (item.key.kind != SegmentKind::kForward) continue;
    const SegmentKey key = item.key.with_casts(false);
    seen_[{key.layer_class, key.variant, key.mode}].measured = true;
  }
  if (outcome.plan == nullptr) return;
  std::set<ModeOfLayer> asked;
  const std::size_t layers = std::min(structure.layers.size(), outcome.plan->modes.size());
  for (std::size_t i = 0; i < layers; ++i) {
    const StepStructure::Layer& layer = structure.layers[i];
    asked.emplace(layer.layer_class, layer.variant, outcome.plan->modes[i]);
  }
  for (const ModeOfLayer& mode : asked) {
    int& times = seen_[mode].asked;
    times = std::min(times + 1, kMostTries);
  }
}

}  // namespace pudica
