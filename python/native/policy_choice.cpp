#include "native/policy_choice.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/nearest_name.h"
#include "native/random_policy.h"
#include "policy/policy_factory.h"
#include "policy/policy_spec.h"

namespace pudica::python {

std::vector<std::string> attachable_policies() {
  std::vector<std::string> names;
  for (const std::string& name : policy_names()) {
    const auto spec = parse_policy_spec(name);
    if (spec && make_policy(*spec, PolicyInputs{})) names.push_back(name);
  }
  return names;
}

PolicyChoice choose_policy(const Settings& settings) {
  const std::string kind = settings.policy_given ? "attach: " : "config: ";
  PolicyChoice choice{settings.config.policy, random_policy_of(settings.config.policy), nullptr};
  if (choice.policy) return choice;
  const auto spec = parse_policy_spec(settings.config.policy);
  if (!spec) throw std::runtime_error(kind + spec.error().message);
  ControllerOptions options = compile_controller_options(settings.config);
  if (settings.device != "cpu") options.predictor.granularity_bytes = 512;
  if (spec->name == "pudica") {
    if (!spec->menu.empty()) options.menu = spec->menu;
    choice.controllers = std::make_shared<Controllers>(std::move(options));
    choice.policy = choice.controllers;
    return choice;
  }
  PolicyInputs inputs;
  inputs.controller = std::move(options);
  auto policy = make_policy(*spec, inputs);
  if (!policy) {
    throw std::runtime_error(kind + policy.error().message +
                             ", and attach() measures none beforehand; expected one of " +
                             joined_names(attachable_policies()));
  }
  choice.policy = *std::move(policy);
  return choice;
}

}  // namespace pudica::python
