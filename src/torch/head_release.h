// What layers made and left for the head to free: autocast's casts of weights whose layer was not
// kept, keys and values in a cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "torch/recorder.h"
#include "torch/step_profile.h"

namespace pudica::hooks {

struct ReleasedInHead {
  std::vector<std::int64_t> by_layer;  // bytes, of each call
  std::vector<std::int64_t> events;    // that freed them, ascending
};

// Of what was allocated between the marks of these calls' forwards and was there when the head
// began, what it freed: events `begin` to `end`. Of the last call's outputs some go there whatever
// the plan: they are the head's.
ReleasedInHead released_in_head(const Recorder& recorder, std::span<const Mark> marks,
                                std::span<const RecordedCall> calls, std::int64_t begin,
                                std::int64_t end);

// Out of the deltas of what begins behind `begin` events.
void take_out(const ReleasedInHead& released, std::int64_t begin, std::span<std::int64_t> deltas);

// Those of forwards and of the head. A forward that was disturbed released nothing of its mode.
void tell_observations(const ReleasedInHead& released, std::span<const RecordedCall> calls,
                       std::span<SegmentObservation> observations);

}  // namespace pudica::hooks
