#include "policy/policy_factory.h"

#include <string>
#include <utility>

#include "base/nearest_name.h"
#include "policy/policies.h"

namespace pudica {
namespace {

using PolicyResult = Result<std::shared_ptr<Policy>>;

// A plan's choice is one byte a layer.
constexpr std::size_t kMaxModes = 255;

Result<void> check_costs(const StepCosts& costs, const ShapeKey& shape) {
  for (std::size_t layer = 0; layer < costs.layers.size(); ++layer) {
    const std::size_t modes = costs.layers[layer].modes.size();
    if (modes >= 1 && modes <= kMaxModes) continue;
    return invalid_argument("costs at shape " + shape.to_string() + ": layer " +
                            std::to_string(layer) + " has " + std::to_string(modes) +
                            " modes, expected 1 to 255");
  }
  return {};
}

PolicyResult make_static(const PolicyInputs& inputs) {
  if (!inputs.longest_costs || inputs.longest_costs->layers.empty()) {
    return invalid_argument("policy 'static' needs the costs of a step at the longest shape");
  }
  if (const auto checked = check_costs(*inputs.longest_costs, inputs.longest_shape); !checked) {
    return checked.error().with_context("policy 'static'");
  }
  StaticPolicyOptions options;
  options.longest_shape = inputs.longest_shape;
  options.costs = *inputs.longest_costs;
  options.base_bytes = inputs.steady_base_bytes;
  options.planner = inputs.controller.planner;
  return std::shared_ptr<Policy>(make_static_policy(std::move(options)));
}

PolicyResult make_oracle(const PolicyInputs& inputs) {
  if (inputs.oracle_costs.empty()) {
    return invalid_argument("policy 'oracle' needs the costs of a step at each shape");
  }
  for (const auto& [shape, costs] : inputs.oracle_costs) {
    if (const auto checked = check_costs(costs, shape); !checked) {
      return checked.error().with_context("policy 'oracle'");
    }
  }
  OraclePolicyOptions options;
  options.costs = inputs.oracle_costs;
  options.planner = inputs.controller.planner;
  return std::shared_ptr<Policy>(make_oracle_policy(std::move(options)));
}

PolicyResult make_mimose(const PolicySpec& spec) {
  MimosePolicyOptions options;
  options.rule = spec.mimose_rule;
  options.buffer_fraction = spec.mimose_buffer_fraction;
  options.warmup_steps = spec.mimose_warmup_steps;
  return std::shared_ptr<Policy>(make_mimose_policy(options));
}

PolicyResult make_pudica(const PolicySpec& spec, const PolicyInputs& inputs) {
  ControllerOptions options = inputs.controller;
  if (!spec.menu.empty()) options.menu = spec.menu;
  return std::shared_ptr<Policy>(make_controller(options));
}

}  // namespace

PolicyResult make_policy(const PolicySpec& spec, const PolicyInputs& inputs) {
  if (spec.name == "none") return std::shared_ptr<Policy>(make_none_policy());
  if (spec.name == "full") return std::shared_ptr<Policy>(make_full_policy());
  if (spec.name == "every_n") return std::shared_ptr<Policy>(make_every_n_policy(spec.every_n));
  if (spec.name == "sqrt") return std::shared_ptr<Policy>(make_sqrt_policy());
  if (spec.name == "dtr") return std::shared_ptr<Policy>(make_dtr_policy(spec.dtr_eviction));
  if (spec.name == "sac") {
    return std::shared_ptr<Policy>(
        make_sac_policy(spec.sac_save.empty() ? products_and_attention() : spec.sac_save));
  }
  if (spec.name == "reactive") return std::shared_ptr<Policy>(make_reactive_policy());
  if (spec.name == "static") return make_static(inputs);
  if (spec.name == "oracle") return make_oracle(inputs);
  if (spec.name == "mimose") return make_mimose(spec);
  if (spec.name == "pudica") return make_pudica(spec, inputs);
  return invalid_argument("unknown policy '" + spec.name + "'; expected " +
                          joined_names(policy_names()) + did_you_mean(spec.name, policy_names()));
}

}  // namespace pudica
