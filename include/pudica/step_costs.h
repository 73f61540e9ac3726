// The costs of a step: what it needs at one shape, for every mode of every layer. Values only; what
// follows from them is in peak_model.h, who learns them in step_learner.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pudica/mode.h"

namespace pudica {

// One mode of one layer. All bytes are relative to the live bytes where the segment starts.
struct LayerModeCosts {
  Mode mode;
  std::int64_t forward_net_bytes = 0;  // left live by the forward: kept tensors and the output
  std::int64_t forward_peak_bytes = 0;
  std::int64_t released_bytes = 0;       // of forward_net, freed in the head (autocast casts)
  std::int64_t backward_peak_bytes = 0;  // recompute included
  double extra_seconds = 0;              // over the layer's fastest mode
  // How much more the backward needs behind a layer that holds its output, as one does that saves
  // it: it goes in the other's own backward then, not as soon as this one has read it.
  std::int64_t behind_holder_bytes = 0;
  bool holds_output = false;
};

struct LayerCosts {
  std::uint16_t layer_class = 0;
  std::int64_t gap_net_bytes = 0;   // forward between the layer before and this one
  std::int64_t gap_peak_bytes = 0;  // (layer 0: everything before it, the embedding)
  // Forward net + backward net - released bytes, the same in every mode: parameter gradients that
  // appear, mostly.
  std::int64_t residue_bytes = 0;
  // Of what a `full` forward leaves, the output: freed once the next layer has run, if both are
  // recomputed as one. 0 where unknown: at worst too much is counted.
  std::int64_t output_bytes = 0;
  static constexpr std::size_t kMostModes = 64;  // a choice is a byte
  bool follows_previous = false;  // reads the output of the layer before; may be one with it
  std::vector<LayerModeCosts> modes;
};

// Everything a step needs at one shape, above the bytes live when it begins.
struct StepCosts {
  std::vector<LayerCosts> layers;
  // Above the live bytes at the head's start, with no `released_bytes` in them: what the layers
  // left for the head goes at one point of it, up to which it needs until_release_peak_bytes.
  std::int64_t head_net_bytes = 0;
  std::int64_t head_peak_bytes = 0;
  std::int64_t until_release_peak_bytes = 0;  // at most head_peak_bytes
  std::int64_t head_behind_holder_bytes = 0;  // as LayerModeCosts has them, of the last layer
  // Live beside everything else until the forward returns, in the head (StepContext), and the
  // head's peak until then.
  std::int64_t returning_bytes = 0;
  std::int64_t return_peak_bytes = 0;
  std::int64_t epilogue_net_bytes = 0;
  std::int64_t epilogue_peak_bytes = 0;
  std::int64_t optimizer_peak_bytes = 0;
  // Of a forward that waits for others with which it shares a backward, in place of all that comes
  // behind its last layer: until the next one begins.
  std::int64_t waiting_net_bytes = 0;
  std::int64_t waiting_peak_bytes = 0;
  double step_seconds = 0;  // with every layer in its fastest mode; 0: unknown
};

// A mode on the menu that is left out: not known well enough for this shape.
struct UnknownMode {
  std::uint16_t layer_class = 0;
  Mode mode;
  // What it needs at most, told from the one shape at which it was seen: grown as batch x length,
  // or as batch x length^2 where `keep` or `full` grew faster than that, and some more. nullopt: it
  // never ran.
  std::optional<LayerModeCosts> seen;
  // What the class's menu promises of it (StepStructure::Menu), told for this shape.
  std::int64_t freed_bytes = 0;  // it holds at least so many less than `keep` does
  double work_share = 1;         // of the forward's work, done again; at most all of it
};

// `upper` bounds `point` from above where the data do not identify the shape; equal otherwise.
struct StepModel {
  StepCosts point;
  StepCosts upper;
  bool identified = true;  // no segment is asked beyond the directions in which it was seen
  bool fit = true;         // every segment was seen at two distinct shapes, or at this very one
  bool may_wait = false;   // waiting_*_bytes were seen likewise; fit and identified leave them out
  std::vector<UnknownMode> unknown;
};

}  // namespace pudica
