// The costs of a whole step at one shape, put together from what its segments taught.
#pragma once

#include "predictor/step/segment_store.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/step_costs.h"
#include "pudica/step_learner.h"

namespace pudica {

// StepLearner::costs(), which says how segments become costs, of what `store` knows.
Result<StepModel> build_step_model(const SegmentStore& store, const StepStructure& structure,
                                   const CostsRequest& request);

}  // namespace pudica
