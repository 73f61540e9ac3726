// StepModel: the costs of a whole step at one shape, put together from what its segments taught.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "controller/claims.h"
#include "controller/segment_store.h"
#include "pudica/peak_model.h"
#include "pudica/policy.h"
#include "pudica/result.h"

namespace pudica {

struct StepModelRequest {
  ShapeKey shape;
  std::uint8_t step_kind = 0;  // that the structure is of
  bool gradients_present = false;
  std::int64_t returning_bytes = 0;
  std::int64_t state_bytes = 0;      // that the optimizer will make in its first step
  std::span<const Mode::Kind> menu;  // kinds on offer, as is_on_menu() reads it
  // Layers from the first on may have `offload` until what they put away fills so many bytes.
  std::int64_t host_bytes = 0;
  // Revocation keeps kept calls from being measured (ClassQuery).
  bool derives_kept = false;
  // Leave out modes of which nothing is known instead of failing; keep or full must be known.
  bool lenient = false;
  const Claims* claims = nullptr;  // of what is stored; null: all was measured here
};

// A mode on the menu that is left out: not known well enough for this shape.
struct UnknownMode {
  std::uint16_t layer_class = 0;
  Mode mode;
  // What it needs at most, told from the one shape at which it was seen: grown as batch x length,
  // or as batch x length^2 where `keep` or `full` grew faster than that, and some more. nullopt: it
  // never ran.
  std::optional<LayerModeCosts> seen;
};

// `upper` bounds `point` from above where the data do not identify the shape; equal otherwise.
struct StepModel {
  StepCosts point;
  StepCosts upper;
  bool identified = true;  // no segment is asked beyond the directions in which it was seen
  bool fit = true;         // every segment was seen at two distinct shapes, or at this very one
  std::vector<UnknownMode> unknown;
};

// How the segments of a layer become its costs (v: its class and variant, m: a mode):
//   residue(v)     = forward_net(keep) + backward_net(keep)
//   released(v, m) = max(0, forward_net(m) + backward_net(m) - residue(v))
// A mode unknown for a variant is taken from another variant of the class: its backward peak rises
// by the residue that this variant has beyond the other's.
// The backward of a gap before a layer is that layer's: its residue and its highest point in every
// mode.
// A selective mode is left out until it is as well known as `keep` and `full` are.
// A backward of `keep` that was never seen is that of `full` less what the recompute allocates.
// Errors: kUnavailable, naming the first segment that is unknown.
Result<StepModel> build_step_model(const SegmentStore& store, const StepStructure& structure,
                                   const StepModelRequest& request);

}  // namespace pudica
