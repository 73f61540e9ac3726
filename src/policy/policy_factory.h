// From a policy spec to a policy: the one place where names become objects.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "policy/policy_spec.h"
#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/peak_model.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica {

// What the policies need beside their specs. `controller.planner` serves all of them.
struct PolicyInputs {
  ControllerOptions controller;

  // static: the costs of a step at the longest shape, and the live bytes when a step begins once
  // the optimizer's state exists (0: the first step's own).
  std::optional<StepCosts> longest_costs;
  ShapeKey longest_shape;
  Bytes steady_base_bytes{0};

  // oracle: the costs of a step at every shape that will come, measured beforehand.
  std::map<ShapeKey, StepCosts> oracle_costs;
};

// Errors: kInvalidArgument for an unknown name, for costs with a layer that has no mode or more
// than 255, and for inputs that the policy needs and lacks; the message names them.
Result<std::shared_ptr<Policy>> make_policy(const PolicySpec& spec, const PolicyInputs& inputs);

}  // namespace pudica
