// `oracle`: the plan that perfect knowledge would choose, from costs measured at that very shape.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "controller/plan_builder.h"
#include "policy/fallback_plan.h"
#include "policy/policies.h"

namespace pudica {
namespace {

// What a plan depends on: shape, base, budget. With another base or budget another may be best.
using MemoKey = std::tuple<ShapeKey, Bytes, Bytes>;

class OraclePolicy : public Policy {
 public:
  explicit OraclePolicy(OraclePolicyOptions options)
      : options_(std::move(options)), planner_(make_planner(proving(options_.planner))) {}

  [[nodiscard]] std::string name() const override { return "oracle"; }
  [[nodiscard]] bool wants_menus() const override { return options_.has_selective(); }

  void on_structure(const StepStructure& structure) override {
    if (structure.layers.size() == layers_) return;
    layers_ = structure.layers.size();
    memo_.clear();
  }

  StepDecision begin_step(const StepContext& context) override {
    const MemoKey key{context.shape, context.base_bytes, context.budget_bytes};
    if (const auto known = memo_.find(key); known != memo_.end()) return {known->second, false};
    // Where the base differs at every step nothing is found again: start over rather than grow.
    if (memo_.size() >= kMemoCapacity) memo_.clear();
    Plan plan = plan_for(context);
    plan.id = ++plans_made_;
    return {memo_.emplace(key, std::make_shared<const Plan>(std::move(plan))).first->second, false};
  }

  void end_step(const StepOutcome& /*outcome*/) override {}

 private:
  static constexpr std::size_t kMemoCapacity = 4096;

  // A plan is made once a shape, and may take its time to be proven the best.
  static PlannerOptions proving(PlannerOptions options) {
    options.good_enough_gap = 1e-9;
    options.proof_states = std::max(options.proof_states, 1 << 16);
    return options;
  }

  Plan plan_for(const StepContext& context) {
    const auto costs = options_.costs.find(context.shape);
    if (costs == options_.costs.end()) {
      Plan plan = fallback_plan(context.shape, layers_);
      plan.reason = "policy oracle: every layer recomputed: no costs were measured at " +
                    context.shape.to_string();
      return plan;
    }
    if (layers_ != 0 && layers_ != costs->second.layers.size()) {
      Plan plan = fallback_plan(context.shape, layers_);
      plan.reason = "policy oracle: every layer recomputed: the model has " +
                    std::to_string(layers_) + " layers, the costs measured are of " +
                    std::to_string(costs->second.layers.size());
      return plan;
    }
    PlanRequest request;
    request.context = context;
    // What is known needs no room for errors: without hooks as soon as a plan has held.
    request.ample_fraction = 1;
    Plan plan = build_plan(*planner_, costs->second, request, {}).plan;
    plan.revocable_until_held = context.budget_bytes > Bytes(0);
    plan.reason = "policy oracle: " + plan.reason;
    return plan;
  }

  OraclePolicyOptions options_;
  std::unique_ptr<Planner> planner_;
  std::size_t layers_ = 0;  // 0: not known yet
  std::uint64_t plans_made_ = 0;
  std::map<MemoKey, PlanPtr> memo_;
};

}  // namespace

bool OraclePolicyOptions::has_selective() const {
  const auto is_selective = [](const LayerModeCosts& mode) {
    return mode.mode.kind == Mode::Kind::kSelective;
  };
  return std::ranges::any_of(costs, [&](const auto& of_shape) {
    return std::ranges::any_of(of_shape.second.layers, [&](const LayerCosts& layer) {
      return std::ranges::any_of(layer.modes, is_selective);
    });
  });
}

std::unique_ptr<Policy> make_oracle_policy(OraclePolicyOptions options) {
  return std::make_unique<OraclePolicy>(std::move(options));
}

}  // namespace pudica
