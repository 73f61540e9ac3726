// FixedPolicy: one plan that depends on nothing but the number of layers.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "pudica/policy.h"

namespace pudica {

// Publishes one plan, and a new one when the number of layers changes. Not thread-safe: one owner
// thread.
class FixedPolicy : public Policy {
 public:
  // Modes, default mode, joined, revocable and reason for so many layers; 0: not known yet.
  using Layout = std::function<Plan(std::size_t layers)>;

  FixedPolicy(std::string name, Layout layout);

  [[nodiscard]] std::string name() const override { return name_; }
  void on_structure(const StepStructure& structure) override;
  StepDecision begin_step(const StepContext& context) override;
  void end_step(const StepOutcome& outcome) override;

 private:
  std::string name_;
  Layout layout_;
  std::size_t layers_ = 0;
  std::uint64_t plans_made_ = 0;
  PlanPtr plan_;  // null: to be made at the next step
};

}  // namespace pudica
