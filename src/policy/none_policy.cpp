// `none`: no checkpointing, the reference that every other policy is compared with.
#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

Plan keep_all(std::size_t layers) {
  Plan plan;
  plan.modes.assign(layers, Mode::keep());
  plan.revocable = false;
  plan.reason = "policy none: every layer kept, no hooks";
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_none_policy() {
  return std::make_unique<FixedPolicy>("none", keep_all);
}

}  // namespace pudica
