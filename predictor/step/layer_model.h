// LayerModel: the costs of one layer of a step, put together from what its class taught.
#pragma once

#include <vector>

#include "predictor/step/segment_store.h"
#include "predictor/step/step_model.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/step_costs.h"

namespace pudica {

// As StepModel; without the layer's gap.
struct LayerModel {
  LayerCosts point;
  LayerCosts upper;
  double seconds = 0;  // forward and backward in the fastest mode
  bool identified = true;
  bool fit = true;
  std::vector<UnknownMode> unknown;
};

// Of a layer of `wanted`'s class and variant, wherever in the step it stands. Errors: as
// build_step_model().
Result<LayerModel> build_layer_model(const SegmentStore& store, const StepStructure& structure,
                                     const CostsRequest& request,
                                     const StepStructure::Layer& wanted);

}  // namespace pudica
