// `full`: activation checkpointing of every layer, the common fixed choice.
#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

Plan recompute_all(std::size_t layers) {
  Plan plan;
  plan.modes.assign(layers, Mode::full());
  plan.default_mode = Mode::full();
  plan.revocable = false;
  plan.reason = "policy full: every layer recomputed";
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_full_policy() {
  return std::make_unique<FixedPolicy>("full", recompute_all);
}

}  // namespace pudica
