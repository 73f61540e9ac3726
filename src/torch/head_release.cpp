#include "torch/head_release.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace pudica::hooks {
namespace {

struct Block {
  std::size_t layer = 0;
  std::int64_t bytes = 0;
};
using BlockByPlace = std::unordered_map<const void*, Block>;

// What layers made and is still there behind `end` events, by where it is.
BlockByPlace made_by_layers(const Recorder& recorder, std::span<const Mark> marks,
                            std::int64_t end) {
  BlockByPlace made;
  std::int64_t begin = 0;
  for (const Mark& mark : marks) {
    if (mark.event > end) break;
    const auto deltas = recorder.events(begin, mark.event);
    const auto places = recorder.places(begin, mark.event);
    for (std::size_t k = 0; k < deltas.size(); ++k) {
      const void* const place = places[k].load(std::memory_order_relaxed);
      if (deltas[k] > 0 && mark.kind == MarkKind::kForwardEnd) {
        made.insert_or_assign(place, Block{static_cast<std::size_t>(mark.layer), deltas[k]});
      } else {
        made.erase(place);
      }
    }
    begin = mark.event;
  }
  return made;
}

bool is_handed_on(const RecordedCall& last, std::int64_t event) {
  return std::ranges::find(last.early_frees, event) != last.early_frees.end() ||
         std::ranges::find(last.unread_frees, event) != last.unread_frees.end();
}

}  // namespace

ReleasedInHead released_in_head(const Recorder& recorder, std::span<const Mark> marks,
                                std::span<const RecordedCall> calls, std::int64_t begin,
                                std::int64_t end) {
  BlockByPlace made = made_by_layers(recorder, marks, begin);
  ReleasedInHead released{std::vector<std::int64_t>(calls.size(), 0), {}};
  const auto deltas = recorder.events(begin, end);
  const auto places = recorder.places(begin, end);
  for (std::size_t k = 0; k < deltas.size(); ++k) {
    const auto found = made.find(places[k].load(std::memory_order_relaxed));
    if (found == made.end()) continue;
    const std::int64_t event = begin + static_cast<std::int64_t>(k);
    // Another block may lie there by now, of which nothing was recorded.
    const auto [layer, bytes] = found->second;
    const bool is_layers = deltas[k] == -bytes && layer < calls.size();
    if (is_layers && !is_handed_on(calls.back(), event)) {
      released.by_layer[layer] += bytes;
      released.events.push_back(event);
    }
    made.erase(found);
  }
  return released;
}

void take_out(const ReleasedInHead& released, std::int64_t begin, std::span<std::int64_t> deltas) {
  for (const std::int64_t event : released.events) {
    const auto at = static_cast<std::size_t>(event - begin);
    if (at < deltas.size()) deltas[at] = 0;
  }
}

void tell_observations(const ReleasedInHead& released, std::span<const RecordedCall> calls,
                       std::span<SegmentObservation> observations) {
  for (SegmentObservation& observation : observations) {
    if (observation.key.kind == SegmentKind::kHead) {
      observation.released_bytes =
          std::accumulate(released.by_layer.begin(), released.by_layer.end(), std::int64_t{0});
    }
    if (observation.key.kind != SegmentKind::kForward) continue;
    const auto layer = static_cast<std::size_t>(observation.layer);
    if (!calls[layer].disturbed) observation.released_bytes = released.by_layer[layer];
  }
}

}  // namespace pudica::hooks
