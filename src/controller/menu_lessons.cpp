#include "controller/menu_lessons.h"

#include <algorithm>
#include <optional>

#include "pudica/peak_model.h"

namespace pudica {
namespace {

// Masks held as bits come beside the masks themselves for a moment: a bit for four bytes.
constexpr std::int64_t kBitsShare = 32;
constexpr std::int64_t kOtherOrderShare = 4;

// It holds what `keep` holds until the layer ends, and in the backward at most all of it again.
LayerModeCosts bound_of_offload(const LayerModeCosts& keep) {
  LayerModeCosts bound = keep;
  bound.mode = Mode::offload();
  bound.backward_peak_bytes += std::max<std::int64_t>(0, keep.forward_net_bytes);
  return bound;
}

// To what it needs at most by another reckoning: of what its forward leaves, and of what that and
// its backward need together.
void lower(LayerModeCosts& bound, const LayerModeCosts& other) {
  const std::int64_t whole = std::min(bound.forward_net_bytes + bound.backward_peak_bytes,
                                      other.forward_net_bytes + other.backward_peak_bytes);
  bound.forward_peak_bytes = std::min(bound.forward_peak_bytes, other.forward_peak_bytes);
  bound.forward_net_bytes = std::min(bound.forward_net_bytes, other.forward_net_bytes);
  bound.backward_peak_bytes = whole - bound.forward_net_bytes;
}

// What it holds less comes on top in its backward, where it is made again.
void hold_less(LayerModeCosts& bound, std::int64_t freed_bytes, std::int64_t least_bytes) {
  const std::int64_t most = std::max<std::int64_t>(0, bound.forward_net_bytes - least_bytes);
  const std::int64_t freed = std::clamp<std::int64_t>(freed_bytes, 0, most);
  bound.forward_net_bytes -= freed;
  bound.backward_peak_bytes += freed;
}

std::optional<LayerModeCosts> bound_of_selective(const LayerModeCosts& keep,
                                                 const LayerModeCosts& full,
                                                 const UnknownMode& unknown, Reckoning reckoning) {
  LayerModeCosts bound = keep;
  bound.mode = unknown.mode;
  bound.forward_peak_bytes = std::max(
      keep.forward_peak_bytes,
      keep.forward_net_bytes + std::max<std::int64_t>(0, keep.forward_net_bytes) / kBitsShare);
  // Both are above what earlier layers hold. A recovery makes what running the layer again makes,
  // though in another order: reckoned a quarter more.
  if (reckoning == Reckoning::kAtMost) {
    bound.backward_peak_bytes =
        std::max(keep.backward_peak_bytes,
                 full.forward_net_bytes + full.backward_peak_bytes - keep.forward_net_bytes) +
        std::max<std::int64_t>(0, keep.forward_net_bytes) / kOtherOrderShare;
  }
  bound.released_bytes = std::min(keep.released_bytes, full.released_bytes);
  hold_less(bound, unknown.freed_bytes, full.forward_net_bytes);
  if (unknown.seen) lower(bound, *unknown.seen);
  bound.extra_seconds = keep.extra_seconds +
                        unknown.work_share * std::max(0.0, full.extra_seconds - keep.extra_seconds);
  return bound;
}

// nullopt: without `keep`, and without `full` where something runs again, there is no bound.
std::optional<LayerModeCosts> bound_of(const LayerCosts& layer, const UnknownMode& unknown,
                                       Reckoning reckoning = Reckoning::kAtMost) {
  const auto keep = std::ranges::find(layer.modes, Mode::keep(), &LayerModeCosts::mode);
  const auto full = std::ranges::find(layer.modes, Mode::full(), &LayerModeCosts::mode);
  if (keep == layer.modes.end()) return std::nullopt;
  if (unknown.mode != Mode::offload()) {
    if (full == layer.modes.end()) return std::nullopt;
    return bound_of_selective(*keep, *full, unknown, reckoning);
  }
  LayerModeCosts bound = bound_of_offload(*keep);
  if (unknown.seen) lower(bound, *unknown.seen);
  if (full != layer.modes.end()) {
    bound.extra_seconds = std::max(keep->extra_seconds, full->extra_seconds);
  }
  return bound;
}

class Teacher {
 public:
  Teacher(const StepModel& model, std::span<const std::uint8_t> choice,
          std::span<const std::uint8_t> joined, std::int64_t room_bytes, const LessonTerms& terms)
      : costs_(model.upper),
        choice_(choice.begin(), choice.end()),
        joined_(joined),
        taken_(choice.size(), false),
        room_bytes_(room_bytes),
        most_seconds_(terms.most_seconds) {
    for (const MenuLesson& lesson : terms.beside) taken_[lesson.layer] = true;
    for (std::size_t i = 1; i < std::min(joined.size(), taken_.size()); ++i) {
      if (joined[i] != 0) taken_[i] = taken_[i - 1] = true;
    }
  }

  // Layers of the class, those where it changes least first: kept ones from the first on, whose
  // backwards find most room; of the others the last, which hold for the shortest time.
  [[nodiscard]] std::vector<std::size_t> candidates(std::uint16_t layer_class) const {
    std::vector<std::size_t> kept;
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < choice_.size(); ++i) {
      if (taken_[i] || costs_.layers[i].layer_class != layer_class) continue;
      const bool keeps = costs_.layers[i].modes[choice_[i]].mode == Mode::keep();
      (keeps ? kept : others).push_back(i);
    }
    kept.insert(kept.end(), others.rbegin(), others.rend());
    return kept;
  }

  void teach(const UnknownMode& unknown, MenuLessons& out) {
    for (const std::size_t i : candidates(unknown.layer_class)) {
      auto& modes = costs_.layers[i].modes;
      const auto bound = bound_of(costs_.layers[i], unknown);
      if (!bound) return;
      const double extra = std::max(0.0, bound->extra_seconds - modes[choice_[i]].extra_seconds);
      const bool is_dear = out.extra_seconds + extra > most_seconds_;
      const std::uint8_t before = choice_[i];
      modes.push_back(*bound);
      choice_[i] = static_cast<std::uint8_t>(modes.size() - 1);
      const std::int64_t peak = step_peak_bytes(costs_, choice_, joined_);
      if (peak <= room_bytes_ && !is_dear) {
        taken_[i] = true;
        out.peak_bytes = peak;
        out.extra_seconds += extra;
        out.lessons.push_back(
            {i, unknown.mode, bound->forward_peak_bytes, bound->backward_peak_bytes});
        return;
      }
      if (peak <= room_bytes_) {
        out.awaited_seconds = std::min(out.awaited_seconds, out.extra_seconds + extra);
      }
      choice_[i] = before;
      modes.pop_back();
    }
  }

 private:
  StepCosts costs_;
  std::vector<std::uint8_t> choice_;
  std::span<const std::uint8_t> joined_;
  std::vector<bool> taken_;
  std::int64_t room_bytes_;
  double most_seconds_;
};

}  // namespace

StepCosts with_unknown_modes(const StepModel& model, Reckoning reckoning) {
  StepCosts costs = model.upper;
  for (LayerCosts& layer : costs.layers) {
    const LayerCosts known = layer;
    for (const UnknownMode& unknown : model.unknown) {
      const bool is_known = std::ranges::find(known.modes, unknown.mode, &LayerModeCosts::mode) !=
                            known.modes.end();  // of layers that stand elsewhere
      if (unknown.layer_class != layer.layer_class || is_known) continue;
      if (layer.modes.size() >= LayerCosts::kMostModes) continue;
      if (const auto bound = bound_of(known, unknown, reckoning)) layer.modes.push_back(*bound);
    }
  }
  return costs;
}

MenuLessons lessons_within(const StepModel& model, std::span<const std::uint8_t> choice,
                           std::span<const std::uint8_t> joined, std::int64_t room_bytes,
                           const LessonTerms& terms) {
  MenuLessons out;
  Teacher teacher(model, choice, joined, room_bytes, terms);
  for (const UnknownMode& unknown : model.unknown) teacher.teach(unknown, out);
  return out;
}

}  // namespace pudica
