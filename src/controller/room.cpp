#include "controller/room.h"

#include <algorithm>
#include <cstdint>

namespace pudica {
namespace {

// A margin that fell by less than this share of the budget leaves the plans as they are.
constexpr std::int64_t kShareThatPlansAnew = 4000;

}  // namespace

void Room::told(Bytes bytes) {
  if (bytes == told_) return;
  told_ = bytes;
  budget_ = bytes;
}

std::optional<Room::Change> Room::settle() {
  const Bytes target = budget_ - Bytes(margin.held_back_bytes(budget_.count()));
  if (target == available_ && budget_ == available_budget_) return std::nullopt;
  const bool limited = budget_ > Bytes(0) && is_limited();
  const bool same_budget = budget_ == available_budget_;
  const Bytes shrink = available_ - target;
  deferred_growth_ = std::max(Bytes(0), deferred_growth_ - shrink);
  Change change;
  if (!limited) {
    change.forget = true;
    deferred_growth_ = Bytes(0);
  } else if (shrink > Bytes(0) || !same_budget ||
             deferred_growth_ >= Bytes(budget_.count() / kShareThatPlansAnew)) {
    change.shrink = shrink;
    if (shrink < Bytes(0)) deferred_growth_ = Bytes(0);
  }  // else new plans use the growth; the others are not worth redoing
  available_ = target;
  available_budget_ = budget_;
  return change;
}

Bytes Room::held_back(Bytes budget) const {
  if (budget == available_budget_) return budget - available_;
  return Bytes(margin.held_back_bytes(budget.count()));
}

}  // namespace pudica
