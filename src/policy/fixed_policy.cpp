#include "policy/fixed_policy.h"

#include <memory>
#include <utility>

namespace pudica {

FixedPolicy::FixedPolicy(std::string name, Layout layout)
    : name_(std::move(name)), layout_(std::move(layout)) {}

void FixedPolicy::on_structure(const StepStructure& structure) {
  if (structure.layers.size() == layers_) return;
  layers_ = structure.layers.size();
  plan_ = nullptr;
}

StepDecision FixedPolicy::begin_step(const StepContext& context) {
  if (plan_ == nullptr) {
    Plan plan = layout_(layers_);
    plan.id = ++plans_made_;
    plan.shape = context.shape;
    plan_ = std::make_shared<const Plan>(std::move(plan));
  }
  return {plan_, false};
}

void FixedPolicy::end_step(const StepOutcome& /*outcome*/) {}

}  // namespace pudica
