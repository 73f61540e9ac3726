// From the recorder's marks and events to what the predictor learns: one observation a segment.
#pragma once

#include <cstdint>
#include <vector>

#include "pudica/mode.h"
#include "pudica/policy.h"
#include "torch/recorder.h"
#include "torch/work_clock.h"

namespace pudica::hooks {

// One layer call of the recorded step.
struct RecordedCall {
  std::uint16_t layer_class = 0;
  std::uint8_t variant = 0;
  Mode mode;
  // Its backward tells nothing of its mode: it was revoked, or is part of a joint segment.
  bool disturbed = false;
  // It is one with the call before it, whose output goes once this one has run: its own forward and
  // what comes right behind tell nothing of themselves.
  bool joined = false;
  // Its forward's time is not its own: it was searched for a menu.
  bool collected = false;
  // Tells nothing: it is run again in the backward although it was kept, or was kept until its end.
  bool on_trial = false;
  // Nothing in it needs a gradient (frozen layers below all that is trained): it has no border, and
  // its backward is empty.
  bool no_gradient = false;
  // Of its outputs, freed in its own backward and not in the one before; of its inputs, freed when
  // it is over: see OutputWatch.
  std::int64_t held_output_bytes = 0;
  std::int64_t left_input_bytes = 0;
  // Events that freed the others of its outputs.
  std::vector<std::int64_t> early_frees;
  // Events that freed what it made and the next layer did not read.
  std::vector<std::int64_t> unread_frees;
  WorkTime recovery;  // by tape, or by running it again; from the host with `offload`
  WorkTime forward;   // without what its frame did at its end
};

struct RecordedStep {
  std::vector<RecordedCall> calls;
  // Events that freed what several layers read and none made (OutputWatch::shared).
  std::vector<std::int64_t> shared_frees;
  bool gradients_present = false;
  bool begins_at_layer = false;  // what comes before is not told
  bool shares_backward = false;  // it goes on to forwards before this one, whose own is not told
  bool waits = false;            // its backward is to come, in a step behind this one
  bool casts_present = false;    // StepContext
};

// A recorded forward that waited for its backward, which came in a later step.
struct WaitedStep {
  RecordedStep step;  // as its forward left it
  std::int32_t steps_before = 0;
};

// The time of a segment that a device had not come to when its step ended.
struct LateSegment {
  SegmentKey key;
  WorkTime time;
  std::int64_t layers = 1;  // whose sum the time is
};

struct StepProfile {
  std::vector<SegmentObservation> observations;
  std::vector<LateSegment> late;  // observations without seconds
};

// The segments that the marks show cleanly. Where a layer holds its output itself, the output
// is taken to be freed where others free theirs, right before the layer's backward, and to
// be allocated again in it: what a layer leaves is the same then whatever its neighbours do, and no
// highest point moves. What several layers read goes with the last of them, which is to be like its
// siblings: there it is taken to be freed right behind. Where a layer lets go of its output
// earlier, while the backward before its own is under way, that backward is told as it would have
// been otherwise as well. What it made and nobody reads (attention's weights, in a variable until
// the next layer returns) and it does not hold itself is taken to be freed at its end, and what
// runs until then is told both ways. What a layer made beside what it hands on and the head frees
// (autocast's casts of weights, which a kept layer's backward waits for) is told as the layer's,
// and left out of the head: that is the same whatever was recomputed before it. Forward segments
// are given whenever the forward is complete; head, backward and the rest only if the borders came
// in the order of a chain (last layer first). Empty if the recorder overflowed.
StepProfile build_profile(const Recorder& recorder, const RecordedStep& step);

// Of its layers' backward alone, and what lies between them: where its head is over does not show,
// since the loss is that of all.
StepProfile build_waited_profile(const Recorder& recorder, const WaitedStep& waited);

}  // namespace pudica::hooks
