#include "daemon/model_agreement.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "pudica/step_learner.h"

namespace pudica::daemon {
namespace {

// Models that differ by less are one model on two machines: what that is wrong by is revoked.
constexpr double kContradictingShare = 0.1;
constexpr std::size_t kMostShapes = 8;

void add_shapes(const Controller& controller, std::set<ShapeKey>& shapes) {
  const std::size_t most = shapes.size() + kMostShapes;
  for (const LearnedQuantity& learned : controller.snapshot().learned) {
    if (shapes.size() >= most) return;
    if (learned.quantity == "net_bytes" && learned.latest_shape.size() > 0) {
      shapes.insert(learned.latest_shape);
    }
  }
}

bool differ(std::int64_t left, std::int64_t right) {
  const std::int64_t off = std::abs(left - right);
  const auto larger = static_cast<double>(std::max(std::abs(left), std::abs(right)));
  return off > kNoticeableBytes && static_cast<double>(off) > kContradictingShare * larger;
}

bool differ(const LayerModeCosts& left, const LayerModeCosts& right) {
  return differ(left.forward_net_bytes, right.forward_net_bytes) ||
         differ(left.forward_peak_bytes, right.forward_peak_bytes) ||
         differ(left.backward_peak_bytes + left.behind_holder_bytes,
                right.backward_peak_bytes + right.behind_holder_bytes);
}

Agreement compare(const StepCosts& left, const StepCosts& right) {
  if (left.layers.size() != right.layers.size()) return Agreement::kContradicts;
  Agreement out = Agreement::kUnknown;
  for (std::size_t i = 0; i < left.layers.size(); ++i) {
    for (const LayerModeCosts& mode : left.layers[i].modes) {
      const auto& others = right.layers[i].modes;
      const auto other = std::ranges::find(others, mode.mode, &LayerModeCosts::mode);
      if (other == others.end()) continue;
      if (differ(mode, *other)) return Agreement::kContradicts;
      out = Agreement::kAgrees;
    }
  }
  return out;
}

std::optional<StepCosts> sure_costs(const Controller& controller, const ShapeKey& shape) {
  const auto estimate = controller.estimate(shape, Bytes(0));
  if (!estimate || !estimate->identified) return std::nullopt;
  StepContext context;
  context.shape = shape;
  auto costs = controller.costs(context);
  if (!costs) return std::nullopt;
  return std::move(*costs);
}

}  // namespace

Agreement compare(const Controller& left, const Controller& right) {
  std::set<ShapeKey> shapes;
  add_shapes(left, shapes);
  add_shapes(right, shapes);
  Agreement out = Agreement::kUnknown;
  for (const ShapeKey& shape : shapes) {
    const auto ours = sure_costs(left, shape);
    const auto theirs = ours ? sure_costs(right, shape) : std::nullopt;
    if (!theirs) continue;
    const Agreement here = compare(*ours, *theirs);
    if (here == Agreement::kContradicts) return here;
    if (here == Agreement::kAgrees) out = here;
  }
  return out;
}

}  // namespace pudica::daemon
