// `oracle`: the plan that perfect knowledge would choose, from costs measured at that very shape.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "policy/fallback_plan.h"
#include "policy/policies.h"
#include "pudica/plan_builder.h"

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
    if (menus_ != structure.menus) memo_.clear();
    menus_ = structure.menus;
    if (structure.layers.size() == layers_) return;
    layers_ = structure.layers.size();
    memo_.clear();
  }

  StepDecision begin_step(const StepContext& context) override {
    const MemoKey key{context.shape, context.base_bytes, context.budget_bytes};
    if (searches()) memo_.clear();
    if (const auto known = memo_.find(key); known != memo_.end()) return {known->second, false};
    // Where the base differs at every step nothing is found again: start over rather than grow.
    if (memo_.size() >= kMemoCapacity) memo_.clear();
    if (auto search = search_plan(context)) {
      search->id = ++plans_made_;
      return {std::make_shared<const Plan>(std::move(*search)), false};
    }
    Plan plan = plan_for(context);
    plan.id = ++plans_made_;
    return {memo_.emplace(key, std::make_shared<const Plan>(std::move(plan))).first->second, false};
  }

  void end_step(const StepOutcome& /*outcome*/) override { ++steps_; }

 private:
  static constexpr std::size_t kMemoCapacity = 4096;

  // A plan is made once a shape, and may take its time to be proven the best.
  static PlannerOptions proving(PlannerOptions options) {
    options.good_enough_gap = 1e-9;
    options.proof_states = std::max(options.proof_states, 1 << 16);
    return options;
  }

  static constexpr std::int64_t kMostSearches = 2;

  // Selective modes run once the menus were found in this process too, which takes room. The first
  // step leaves what its plan leaves; where that was too little, those after it leave the most.
  [[nodiscard]] bool lacks_menus() const {
    if (!wants_menus() || steps_ == 0) return false;
    const auto unknown = [](const StepStructure::Menu& menu) { return menu.id == 0; };
    return menus_.empty() || std::ranges::any_of(menus_, unknown);
  }
  [[nodiscard]] bool has_menu(std::uint16_t layer_class) const {
    return layer_class < menus_.size() && menus_[layer_class].id != 0;
  }
  [[nodiscard]] bool searches() const { return lacks_menus() && steps_ <= kMostSearches; }

  // All recomputed but the first layer of each class. Nothing: there is no need.
  [[nodiscard]] std::optional<Plan> search_plan(const StepContext& context) const {
    const auto costs = options_.costs.find(context.shape);
    if (!searches() || costs == options_.costs.end()) return std::nullopt;
    Plan plan = fallback_plan(context.shape, costs->second.layers.size());
    plan.revocable = true;
    std::set<std::uint16_t> searched;
    for (std::size_t i = 0; i < plan.modes.size(); ++i) {
      const bool first = searched.insert(costs->second.layers[i].layer_class).second;
      if (first) plan.modes[i] = Mode::selective(0);
    }
    plan.reason =
        "policy oracle: the menu is still to be found: one layer of each class kept for it";
    return plan;
  }

  // Of layers whose menu was not found: what cannot be run under this budget is no mark to reach.
  [[nodiscard]] StepCosts runnable(StepCosts costs) const {
    for (LayerCosts& layer : costs.layers) {
      if (has_menu(layer.layer_class)) continue;
      std::erase_if(layer.modes, [](const LayerModeCosts& mode) {
        return mode.mode.kind == Mode::Kind::kSelective;
      });
    }
    return costs;
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
    const StepCosts within = lacks_menus() ? runnable(costs->second) : costs->second;
    Plan plan = build_plan(*planner_, within, request, {}).plan;
    plan.revocable_until_held = context.budget_bytes > Bytes(0);
    plan.reason = "policy oracle: " + plan.reason;
    return plan;
  }

  OraclePolicyOptions options_;
  std::unique_ptr<Planner> planner_;
  std::size_t layers_ = 0;  // 0: not known yet
  std::vector<StepStructure::Menu> menus_;
  std::int64_t steps_ = 0;
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
