#include "controller/base_bytes.h"

#include <algorithm>

namespace pudica {
namespace {

// Steps of a run that may come before its optimizer's first.
constexpr std::uint64_t kMostFirstSteps = 64;

}  // namespace

void BaseBytes::begin_step(const StepContext& context, std::uint64_t step) {
  most_returning_ = std::max(most_returning_, context.returning_bytes);
  if (context.waiting_forwards > 0) return;  // held for another forward as well
  const std::size_t sort = context.gradients_present ? 1 : 0;
  latest_[sort] = context.base_bytes;
  // No gradients again: there was an optimizer's step.
  const bool is_over = sort == 0 && !coming_[0];
  if (is_over || step > kMostFirstSteps) coming_[1].reset();
  const auto& coming = coming_[sort];
  coming_state_ = coming ? std::max(Bytes(0), *coming - context.base_bytes) : Bytes(0);
  if (sort == 0) coming_[0].reset();
}

StepContext BaseBytes::context_at(const ShapeKey& shape, Bytes budget) const {
  StepContext context;
  context.shape = shape;
  context.budget_bytes = budget;
  context.gradients_present = !latest_[0] && latest_[1];
  context.base_bytes = latest_[context.gradients_present ? 1 : 0].value_or(Bytes(0));
  context.returning_bytes = most_returning_;
  return context;
}

void BaseBytes::restore(const Saved& saved, Bytes returning) {
  latest_ = coming_ = saved;
  most_returning_ = returning;
}

void BaseBytes::drop_restored() {
  most_returning_ = Bytes(0);
  coming_ = {};
}

}  // namespace pudica
