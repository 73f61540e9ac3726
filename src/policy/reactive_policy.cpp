// `reactive`: revocation alone, without prediction or plan.
#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

Plan keep_all_revocably(std::size_t layers) {
  Plan plan;
  plan.modes.assign(layers, Mode::keep());
  plan.revocable = true;
  plan.reason = "policy reactive: every layer kept until memory is short";
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_reactive_policy() {
  return std::make_unique<FixedPolicy>("reactive", keep_all_revocably);
}

}  // namespace pudica
