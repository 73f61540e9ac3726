// `every_n`: every n-th layer is recomputed, the rest kept.
#include <string>

#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

Plan every_nth(std::size_t layers, std::size_t n) {
  Plan plan;
  plan.modes.assign(layers, Mode::keep());
  for (std::size_t layer = 0; layer < layers; layer += n) plan.modes[layer] = Mode::full();
  // Layers that are not known yet: the choice that needs the least memory.
  plan.default_mode = Mode::full();
  plan.revocable = false;
  plan.reason = "policy every_n: layers 0, " + std::to_string(n) + ", ... recomputed";
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_every_n_policy(std::int64_t n) {
  if (n < 1) throw BugError("every_n: n is " + std::to_string(n) + ", expected at least 1");
  const auto stride = static_cast<std::size_t>(n);
  return std::make_unique<FixedPolicy>(
      "every_n", [stride](std::size_t layers) { return every_nth(layers, stride); });
}

}  // namespace pudica
