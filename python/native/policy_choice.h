// Which policy an attached model is planned by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "native/controllers.h"
#include "native/settings.h"
#include "pudica/policy.h"

namespace pudica::python {

struct PolicyChoice {
  std::string spec;  // as it was given: "mimose:rule=code"
  std::shared_ptr<Policy> policy;
  std::shared_ptr<Controllers> controllers;  // the policy itself; null: another than pudica
};

// The policies that plan from nothing but the steps that run, in the order of policy_names(): those
// that need costs measured beforehand are not among them.
std::vector<std::string> attachable_policies();

// Throws std::runtime_error "kind: message" for a spec that cannot be read and for a policy that
// needs costs measured beforehand: "attach" for one that was given to attach(), else "config".
PolicyChoice choose_policy(const Settings& settings);

}  // namespace pudica::python
