// `static`: the best plan for the longest shape, frozen. What Mimose's paper runs as "Sublinear"
// (its code: --static_checkpoint plans for max_input once and keeps it).
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "policy/fallback_plan.h"
#include "policy/policies.h"
#include "pudica/plan_builder.h"

namespace pudica {
namespace {

class StaticPolicy : public Policy {
 public:
  explicit StaticPolicy(StaticPolicyOptions options)
      : options_(std::move(options)), planner_(make_planner(options_.planner)) {}

  [[nodiscard]] std::string name() const override { return "static"; }

  void on_structure(const StepStructure& structure) override {
    if (structure.layers.size() == layers_) return;
    layers_ = structure.layers.size();
    fallback_ = nullptr;
  }

  StepDecision begin_step(const StepContext& context) override {
    if (layers_ != 0 && layers_ != options_.costs.layers.size()) return {fallback(context), false};
    if (frozen_ == nullptr) frozen_ = plan_for_longest(context);
    return {frozen_, false};
  }

  void end_step(const StepOutcome& /*outcome*/) override {}

 private:
  PlanPtr plan_for_longest(const StepContext& context) {
    PlanRequest request;
    request.context = context;
    request.context.shape = options_.longest_shape;
    request.context.base_bytes = std::max(context.base_bytes, options_.base_bytes);
    Plan plan = build_plan(*planner_, options_.costs, request, {}).plan;
    plan.id = ++plans_made_;
    plan.revocable = false;
    plan.reason = "policy static: frozen plan for the longest shape " +
                  options_.longest_shape.to_string() + ": " + plan.reason;
    return std::make_shared<const Plan>(std::move(plan));
  }

  PlanPtr fallback(const StepContext& context) {
    if (fallback_ == nullptr) {
      Plan plan = fallback_plan(context.shape, layers_);
      plan.id = ++plans_made_;
      plan.reason = "policy static: every layer recomputed: the model has " +
                    std::to_string(layers_) + " layers, the costs given are of " +
                    std::to_string(options_.costs.layers.size());
      fallback_ = std::make_shared<const Plan>(std::move(plan));
    }
    return fallback_;
  }

  StaticPolicyOptions options_;
  std::unique_ptr<Planner> planner_;
  std::size_t layers_ = 0;  // 0: not known yet
  std::uint64_t plans_made_ = 0;
  PlanPtr frozen_;
  PlanPtr fallback_;
};

}  // namespace

std::unique_ptr<Policy> make_static_policy(StaticPolicyOptions options) {
  return std::make_unique<StaticPolicy>(std::move(options));
}

}  // namespace pudica
