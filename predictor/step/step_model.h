// The costs of a whole step at one shape, put together from what its segments taught.
#pragma once

#include "predictor/step/segment_store.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/step_costs.h"
#include "pudica/step_learner.h"

namespace pudica {

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
                                   const CostsRequest& request);

}  // namespace pudica
