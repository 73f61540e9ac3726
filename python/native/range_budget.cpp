#include "native/range_budget.h"

#include <algorithm>
#include <cstdlib>

#include "pudica/peak_model.h"

namespace pudica::python {
namespace {

// With every layer run again as a whole; a layer that cannot be is kept.
std::vector<std::uint8_t> every_layer_full(const StepCosts& costs) {
  std::vector<std::uint8_t> choice;
  for (const auto& layer : costs.layers) {
    const auto full = std::ranges::find(layer.modes, Mode::full(), &LayerModeCosts::mode);
    const auto place = full == layer.modes.end() ? layer.modes.begin() : full;
    choice.push_back(static_cast<std::uint8_t>(place - layer.modes.begin()));
  }
  return choice;
}

std::optional<RangeBudget::Ends> ends_at(const ShapeKey& shape, const Controller& controller) {
  const auto estimate = controller.estimate(shape, Bytes(0));
  if (!estimate) return std::nullopt;
  StepContext context;
  context.shape = shape;
  context.base_bytes = estimate->base_bytes;
  context.gradients_present = estimate->gradients_present;
  context.returning_bytes = estimate->returning_bytes;
  const auto costs = controller.costs(context);
  if (!costs) return std::nullopt;
  const Bytes floor =
      context.base_bytes + Bytes(step_peak_bytes(*costs, every_layer_full(*costs), {}));
  return RangeBudget::Ends{floor, std::max(floor, estimate->keep_all_peak_bytes)};
}

// What late steps teach moves the ends by less, and a budget that moves takes cached plans with it.
bool is_as_known(Bytes bytes, Bytes known) {
  constexpr std::int64_t kSteady = 1000;
  return std::abs((bytes - known).count()) <= known.count() / kSteady;
}

}  // namespace

void RangeBudget::saw(std::int64_t kind, const ShapeKey& shape) {
  if (kind < 0) return;
  std::vector<ShapeKey>& longest = longest_[std::min(kind, Controllers::kMostKinds - 1)];
  // The model of a kind whose dimensions have other names begins anew.
  std::erase_if(longest, [&](const ShapeKey& one) { return one.names() != shape.names(); });
  if (std::ranges::any_of(longest, [&](const ShapeKey& one) { return one.covers(shape); })) return;
  std::erase_if(longest, [&](const ShapeKey& one) { return shape.covers(one); });
  if (longest.size() >= kMostShapes) longest.erase(longest.begin());
  longest.push_back(shape);
  stale_ = true;
}

std::optional<RangeBudget::Ends> RangeBudget::ends(const Controllers& controllers) {
  if (!stale_) return ends_;
  std::optional<Ends> found;
  for (const auto& [kind, shapes] : longest_) {
    const Controller* const controller = controllers.of(kind);
    if (controller == nullptr) continue;
    for (const ShapeKey& shape : shapes) {
      const auto here = ends_at(shape, *controller);
      if (!here) continue;
      if (!found) found = here;
      found->floor_bytes = std::max(found->floor_bytes, here->floor_bytes);
      found->keep_all_bytes = std::max(found->keep_all_bytes, here->keep_all_bytes);
    }
  }
  // What was known stays where a drift has made it unknown again.
  const bool stays = found && ends_ && is_as_known(found->floor_bytes, ends_->floor_bytes) &&
                     is_as_known(found->keep_all_bytes, ends_->keep_all_bytes);
  if (found && !stays) ends_ = found;
  stale_ = !found;
  return ends_;
}

Bytes RangeBudget::bytes(double fraction, Bytes most, const Controllers& controllers) {
  const auto range = ends(controllers);
  if (!range) return most;
  const auto floor = static_cast<double>(range->floor_bytes.count());
  const auto width = static_cast<double>((range->keep_all_bytes - range->floor_bytes).count());
  return std::min(most, Bytes(static_cast<std::int64_t>(floor + fraction * width)));
}

}  // namespace pudica::python
