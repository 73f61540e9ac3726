#include "torch/unread_outputs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace pudica::hooks {

void set_sums(SegmentSample& sample) {
  sample.net_bytes = 0;
  sample.peak_bytes = 0;
  for (const std::int64_t delta : sample.deltas) {
    sample.net_bytes += delta;
    sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
  }
}

void tell_both_ways(SegmentObservation& observation, std::span<const Unread> unread,
                    std::int64_t begin, std::int64_t end) {
  SegmentSample without = observation.behind_holder.value_or(observation.sample);
  std::int64_t before = 0;
  std::int64_t behind = 0;
  for (const Unread& one : unread) {
    if (one.freed_at < begin) continue;
    before += one.bytes;
    if (one.freed_at < end) {
      without.deltas[static_cast<std::size_t>(one.freed_at - begin)] = 0;
    } else {
      behind += one.bytes;
    }
  }
  if (before == 0) return;
  set_sums(without);
  std::vector<std::int64_t>& deltas = observation.sample.deltas;
  deltas.insert(deltas.begin(), before);
  if (behind != 0) deltas.push_back(-behind);
  set_sums(observation.sample);
  observation.behind_holder = std::move(without);
}

}  // namespace pudica::hooks
