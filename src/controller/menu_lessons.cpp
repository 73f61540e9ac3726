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

std::optional<LayerModeCosts> bound_of(const LayerCosts& layer, Mode mode) {
  const auto keep = std::ranges::find(layer.modes, Mode::keep(), &LayerModeCosts::mode);
  const auto full = std::ranges::find(layer.modes, Mode::full(), &LayerModeCosts::mode);
  if (keep == layer.modes.end()) return std::nullopt;
  if (mode == Mode::offload()) return bound_of_offload(*keep);
  if (full == layer.modes.end()) return std::nullopt;
  LayerModeCosts bound = *keep;
  bound.mode = mode;
  bound.forward_peak_bytes = std::max(
      keep->forward_peak_bytes,
      keep->forward_net_bytes + std::max<std::int64_t>(0, keep->forward_net_bytes) / kBitsShare);
  // Both are above what earlier layers hold. A recovery makes what running the layer again makes,
  // though in another order: reckoned a quarter more.
  bound.backward_peak_bytes =
      std::max(keep->backward_peak_bytes,
               full->forward_net_bytes + full->backward_peak_bytes - keep->forward_net_bytes) +
      std::max<std::int64_t>(0, keep->forward_net_bytes) / kOtherOrderShare;
  bound.released_bytes = std::max(keep->released_bytes, full->released_bytes);
  return bound;
}

// To what it needs at most by another reckoning. What a backward needs comes on top of what its
// forward left: the two go together.
void lower(LayerModeCosts& bound, const LayerModeCosts& other) {
  bound.forward_peak_bytes = std::min(bound.forward_peak_bytes, other.forward_peak_bytes);
  const std::int64_t ours = bound.forward_net_bytes + bound.backward_peak_bytes;
  if (other.forward_net_bytes + other.backward_peak_bytes >= ours) return;
  bound.forward_net_bytes = other.forward_net_bytes;
  bound.backward_peak_bytes = other.backward_peak_bytes;
}

class Teacher {
 public:
  Teacher(const StepModel& model, std::span<const std::uint8_t> choice,
          std::span<const std::uint8_t> joined, std::int64_t room_bytes)
      : costs_(model.upper),
        choice_(choice.begin(), choice.end()),
        joined_(joined),
        taken_(choice.size(), false),
        room_bytes_(room_bytes) {
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
    const Mode mode = unknown.mode;
    for (const std::size_t i : candidates(unknown.layer_class)) {
      auto& modes = costs_.layers[i].modes;
      auto bound = bound_of(costs_.layers[i], mode);
      if (!bound) return;
      if (unknown.seen) lower(*bound, *unknown.seen);
      const std::uint8_t before = choice_[i];
      modes.push_back(*bound);
      choice_[i] = static_cast<std::uint8_t>(modes.size() - 1);
      const std::int64_t peak = step_peak_bytes(costs_, choice_, joined_);
      if (peak <= room_bytes_) {
        taken_[i] = true;
        out.peak_bytes = peak;
        out.lessons.push_back({i, mode, bound->forward_peak_bytes, bound->backward_peak_bytes});
        return;
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
};

}  // namespace

MenuLessons lessons_within(const StepModel& model, std::span<const std::uint8_t> choice,
                           std::span<const std::uint8_t> joined, std::int64_t room_bytes) {
  MenuLessons out;
  Teacher teacher(model, choice, joined, room_bytes);
  for (const UnknownMode& unknown : model.unknown) teacher.teach(unknown, out);
  return out;
}

}  // namespace pudica
