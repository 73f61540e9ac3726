// `sqrt`: Chen et al., "Training deep nets with sublinear memory cost" (arXiv 1604.06174): a
// checkpoint at every floor(sqrt(L))-th layer.
#include <string>

#include "policy/fixed_policy.h"
#include "policy/policies.h"

namespace pudica {
namespace {

// The largest r with r * r <= n, at least 1: exact, unlike a rounded floating-point root.
std::size_t segment_layers(std::size_t n) {
  std::size_t root = 1;
  while ((root + 1) * (root + 1) <= n) ++root;
  return root;
}

Plan sqrt_segments(std::size_t layers) {
  const std::size_t length = segment_layers(layers);
  Plan plan;
  plan.modes.assign(layers, Mode::full());
  plan.joined.assign(layers, 1);
  for (std::size_t first = 0; first < layers; first += length) plan.joined[first] = 0;
  plan.default_mode = Mode::full();
  plan.revocable = false;
  plan.reason = layers == 0 ? "policy sqrt: every layer recomputed until their number is known"
                            : "policy sqrt: segments of " + std::to_string(length) + " of " +
                                  std::to_string(layers) + " layers recomputed as one";
  return plan;
}

}  // namespace

std::unique_ptr<Policy> make_sqrt_policy() {
  return std::make_unique<FixedPolicy>("sqrt", sqrt_segments);
}

}  // namespace pudica
