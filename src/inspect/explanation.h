// Explanation: a plan layer by layer, each with the reason that its costs and the budget give.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/mode.h"
#include "pudica/peak_model.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica::inspect {

struct LayerExplanation {
  std::int64_t layer = 0;
  std::string layer_class;
  Mode mode;
  Bytes held_bytes{0};       // from the layer's forward on, in the plan's mode
  Bytes keep_held_bytes{0};  // and with `keep`
  double extra_seconds = 0;  // of the mode
  std::string why;
};

// A selective mode on the menu of a class, at the shape.
struct MenuExplanation {
  std::string layer_class;
  Mode mode;
  Bytes freed_bytes{0};      // of what a kept layer holds
  double extra_seconds = 0;  // over `keep`
  std::string what;          // in words: what it drops, and which operators run again
  bool measured = true;      // else promised, at the shape in which the menu was found, or 0
};

struct Explanation {
  ShapeKey key;
  Bytes budget_bytes{0};  // 0: not limited
  bool fits = false;
  Bytes predicted_peak_bytes{0};
  Bytes keep_all_peak_bytes{0};
  Bytes floor_peak_bytes{0};
  Bytes margin_bytes{0};
  double extra_seconds = 0;
  std::string reason;
  std::vector<LayerExplanation> layers;
  std::vector<MenuExplanation> menu;  // by class; as promised where no plan wanted it measured
};

// What there is to explain: an estimate, the costs that it rests on, and the modes of a plan.
struct ExplanationInputs {
  const ShapeEstimate& estimate;
  const StepCosts& costs;
  const StepStructure& structure;
  Bytes budget_bytes{0};
  std::vector<Mode> modes;
  bool own_plan = true;                   // the modes are those of the estimate's plan
  std::vector<std::uint8_t> joined = {};  // as in Plan
};

// Errors: kInvalidArgument where the modes do not belong to the layers.
// May throw std::overflow_error for absurd costs.
Result<Explanation> explain_plan(const ExplanationInputs& inputs);

// "4.1 ms"
std::string format_seconds(double seconds);

// The answer of GET /v1/runs/{id}/explain. Never throws.
std::string to_json(const Explanation& explanation, std::string_view run);

}  // namespace pudica::inspect
