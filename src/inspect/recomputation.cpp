#include "inspect/recomputation.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pudica {
namespace {

// What a step's measurements tell of its layers.
class MeasuredTimes {
 public:
  explicit MeasuredTimes(const StepOutcome& outcome) {
    for (const ForwardTime& forward : outcome.forwards) {
      forwards_[forward.layer_class] = forward.seconds;
    }
    for (const RecomputeTime& time : outcome.recomputes) {
      means_[{time.layer_class, time.mode}] = time.seconds;
    }
    for (const SegmentObservation& item : outcome.segments) {
      if (item.key.kind != SegmentKind::kRecompute || item.sample.seconds <= 0) continue;
      layers_[item.layer] += item.sample.seconds;
    }
  }

  // Of running the layer again, as its mode has it. nullopt: nothing is known of it.
  [[nodiscard]] std::optional<double> of(std::int32_t layer, std::uint16_t layer_class,
                                         Mode mode) const {
    if (const auto found = layers_.find(layer); found != layers_.end()) return found->second;
    const auto mean = means_.find({layer_class, mode});
    if (mean != means_.end()) return mean->second;
    return mode == Mode::full() ? forward_of(layer_class) : std::nullopt;
  }

  [[nodiscard]] std::optional<double> forward_of(std::uint16_t layer_class) const {
    const auto found = forwards_.find(layer_class);
    return found == forwards_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::uint16_t, double> forwards_;
  std::map<std::pair<std::uint16_t, Mode>, double> means_;
  std::map<std::int32_t, double> layers_;
};

// The mean forward of the layers that a revocation can have taken: which ones it took is not told.
std::optional<double> revoked_seconds(const MeasuredTimes& times, const StepStructure& structure,
                                      const std::vector<Mode>& modes) {
  double sum = 0;
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < structure.layers.size(); ++i) {
    if (modes[i] == Mode::full()) continue;
    const auto forward = times.forward_of(structure.layers[i].layer_class);
    if (!forward) return std::nullopt;
    sum += *forward;
    ++layers;
  }
  if (layers == 0) return 0.0;
  return sum / static_cast<double>(layers);
}

std::optional<double> measured_seconds(const StepOutcome& outcome, const StepStructure& structure,
                                       const std::vector<Mode>& modes) {
  if (structure.layers.size() < modes.size()) return std::nullopt;  // whose they are is not told
  const MeasuredTimes times(outcome);
  double sum = 0;
  for (std::size_t i = 0; i < structure.layers.size(); ++i) {
    if (!is_recomputed(modes[i])) continue;
    const auto seconds =
        times.of(static_cast<std::int32_t>(i), structure.layers[i].layer_class, modes[i]);
    if (!seconds) return std::nullopt;
    sum += *seconds;
  }
  if (outcome.revocations == 0) return sum;
  const auto revoked = revoked_seconds(times, structure, modes);
  if (!revoked) return std::nullopt;
  return sum + *revoked * static_cast<double>(outcome.revocations);
}

}  // namespace

std::vector<Mode> planned_modes(const Plan& plan, const StepStructure& structure) {
  std::vector<Mode> modes = plan.modes;
  std::set<std::uint16_t> taught;
  for (std::size_t i = 0; i < structure.layers.size(); ++i) {
    const bool first = taught.insert(structure.layers[i].layer_class).second;
    if (i < modes.size()) continue;
    modes.push_back(plan.teach_first_of_class && first ? Mode::full() : plan.default_mode);
  }
  return modes;
}

bool is_recomputed(Mode mode) {
  return mode.kind == Mode::Kind::kFull || mode.kind == Mode::Kind::kSelective;
}

std::int64_t recomputed_calls(const std::vector<Mode>& modes, std::int64_t revocations) {
  const std::int64_t planned = std::ranges::count_if(modes, is_recomputed);
  return std::min(planned + revocations, static_cast<std::int64_t>(modes.size()));
}

std::optional<double> recompute_seconds(const StepOutcome& outcome,
                                        const StepStructure& structure) {
  if (outcome.plan == nullptr) return std::nullopt;
  const std::vector<Mode> modes = planned_modes(*outcome.plan, structure);
  if (recomputed_calls(modes, outcome.revocations) == 0) return 0.0;
  if (const auto measured = measured_seconds(outcome, structure, modes)) return measured;
  const double predicted = outcome.plan->predicted_extra_seconds;
  return predicted > 0 ? std::optional(predicted) : std::nullopt;
}

std::optional<double> recomputed_share(double recompute_seconds, double step_seconds) {
  if (!(step_seconds > 0) || !(recompute_seconds >= 0)) return std::nullopt;
  return std::min(1.0, recompute_seconds / step_seconds);
}

std::optional<double> budget_used(Bytes peak_bytes, Bytes budget_bytes) {
  if (budget_bytes <= Bytes(0) || peak_bytes <= Bytes(0)) return std::nullopt;
  return static_cast<double>(peak_bytes.count()) / static_cast<double>(budget_bytes.count());
}

}  // namespace pudica
