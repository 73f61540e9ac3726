// Outputs that nobody reads: what segments needed while they were still there, and would have
// without.
#pragma once

#include <cstdint>
#include <span>

#include "pudica/policy.h"

namespace pudica::hooks {

// Bytes that a layer made, that nobody reads, and that were freed before the head began.
struct Unread {
  std::int64_t freed_at = 0;  // the recorder's event
  std::int64_t bytes = 0;
};

// Net and peak of what the sample's deltas are.
void set_sums(SegmentSample& sample);

// For a segment of the events from `begin` to `end`: with what was made before it and was still
// there when it began, and as it would have been without (SegmentObservation::behind_holder).
void tell_both_ways(SegmentObservation& observation, std::span<const Unread> unread,
                    std::int64_t begin, std::int64_t end);

}  // namespace pudica::hooks
