#include "planner/polish.h"

#include <algorithm>

#include "planner/saturating.h"

namespace pudica::planner {

void fastest_first(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice) {
  choice->resize(candidates.layers());
  const auto floors = candidates.floors();
  std::int64_t left = budget_bytes;
  for (std::size_t i = 0; i < choice->size(); ++i) {
    const auto modes = candidates.of(i);
    std::size_t m = 0;
    while (m < modes.size() && (modes[m].peak_bytes > left ||
                                saturating_add(modes[m].kept_bytes, floors[i + 1]) > left)) {
      ++m;
    }
    if (m == modes.size()) throw BugError("fastest_first: the budget is below the floor");
    (*choice)[i] = static_cast<std::uint8_t>(m);
    left = saturating_subtract(left, modes[m].kept_bytes);
  }
}

void Polish::run(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice) {
  // Every upgrade moves one layer to a faster candidate, so there are at most as many as modes.
  for (std::size_t n = 0; n < candidates.all().size(); ++n) {
    if (!upgrade_once(candidates, budget_bytes, choice)) return;
  }
}

bool Polish::upgrade_once(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice) {
  const std::size_t layers = candidates.layers();
  room_.resize(layers + 1);
  std::int64_t held = 0;  // by the layers before
  for (std::size_t i = 0; i < layers; ++i) {
    const Candidate& mode = candidates.of(i)[(*choice)[i]];
    room_[i] = saturating_subtract(saturating_subtract(budget_bytes, held), mode.peak_bytes);
    held = saturating_add(held, mode.kept_bytes);
  }
  room_[layers] =
      saturating_subtract(saturating_subtract(budget_bytes, held), candidates.tail_bytes());
  for (std::size_t i = layers; i-- > 0;) room_[i] = std::min(room_[i], room_[i + 1]);

  std::int64_t best_gain = 0;
  std::size_t best_layer = 0;
  std::size_t best_mode = 0;
  std::int64_t left = budget_bytes;
  for (std::size_t i = 0; i < layers; ++i) {
    const auto modes = candidates.of(i);
    const std::size_t now = (*choice)[i];
    for (std::size_t m = 0; m < now; ++m) {
      const std::int64_t gain = modes[now].time_ns - modes[m].time_ns;
      if (gain <= best_gain) break;  // later modes are slower still
      if (modes[m].peak_bytes > left) continue;
      if (saturating_subtract(modes[m].kept_bytes, modes[now].kept_bytes) > room_[i + 1]) continue;
      best_gain = gain;
      best_layer = i;
      best_mode = m;
      break;
    }
    left = saturating_subtract(left, modes[now].kept_bytes);
  }
  if (best_gain == 0) return false;
  (*choice)[best_layer] = static_cast<std::uint8_t>(best_mode);
  return true;
}

}  // namespace pudica::planner
