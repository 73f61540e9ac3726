// `mimose`: the rival, as its authors would accept it. Paper and code: see policies.h.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policy/fallback_plan.h"
#include "policy/mimose_estimator.h"
#include "policy/mimose_scheduler.h"
#include "policy/policies.h"

namespace pudica {
namespace {

constexpr std::int64_t kKeyStep = 5;            // lengths that share a plan
constexpr std::size_t kMaxCachedPlans = 65536;  // distinct lengths; later ones are planned anew

std::int64_t rounded_up(std::int64_t size) {
  const std::int64_t rest = size % kKeyStep;
  return rest == 0 ? size : size - rest + kKeyStep;
}

Bytes to_bytes(double value) {
  constexpr double kLimit = 9.0e18;
  return Bytes(static_cast<std::int64_t>(std::clamp(value, -kLimit, kLimit)));
}

class MimosePolicy : public Policy {
 public:
  explicit MimosePolicy(const MimosePolicyOptions& options) : options_(options) {}

  [[nodiscard]] std::string name() const override { return "mimose"; }

  void on_structure(const StepStructure& structure) override {
    std::vector<std::uint16_t> classes;
    for (const auto& layer : structure.layers) classes.push_back(layer.layer_class);
    if (classes == classes_) return;
    if (!fitted_) {
      // Another model than the one measured so far: the warm-up starts again.
      if (!classes_.empty()) estimator_ = MimoseEstimator();
      estimator_.expect_layers(classes.size());
    }
    classes_ = std::move(classes);
    warmup_plan_ = nullptr;
    plans_.clear();
  }

  StepDecision begin_step(const StepContext& context) override {
    if (!fitted_) return {warmup_plan(context.shape), true};
    const std::int64_t key = rounded_up(mimose_size(context.shape));
    if (const auto known = plans_.find(key); known != plans_.end()) return {known->second, false};
    const PlanPtr plan = publish(plan_for(context, key));
    if (plans_.size() < kMaxCachedPlans) plans_.emplace(key, plan);
    return {plan, false};
  }

  void end_step(const StepOutcome& outcome) override {
    // A step that broke off measured only a part of itself.
    if (fitted_ || outcome.failed) return;
    estimator_.collect(outcome);
    if (estimator_.collected_steps() < options_.warmup_steps) return;
    estimator_.fit();
    fitted_classes_ = classes_;
    fitted_ = true;
  }

 private:
  PlanPtr publish(Plan plan) {
    plan.id = ++plans_made_;
    return std::make_shared<const Plan>(std::move(plan));
  }

  PlanPtr warmup_plan(const ShapeKey& shape) {
    if (warmup_plan_ == nullptr) {
      Plan plan = fallback_plan(shape, classes_.size());
      plan.reason = "policy mimose: warm-up of " + std::to_string(options_.warmup_steps) +
                    " steps: every layer recomputed and measured";
      warmup_plan_ = publish(std::move(plan));
    }
    return warmup_plan_;
  }

  // The layer was measured in the warm-up and is still of the same class.
  [[nodiscard]] bool known_layer(std::size_t layer) const {
    const bool same = classes_.empty() || fitted_classes_.empty() ||
                      (layer < fitted_classes_.size() && layer < classes_.size() &&
                       fitted_classes_[layer] == classes_[layer]);
    return same && estimator_.layer_bytes(layer, 0).has_value();
  }

  Plan plan_for(const StepContext& context, std::int64_t key) const {
    const std::size_t layers = classes_.empty() ? estimator_.layers() : classes_.size();
    Plan plan = fallback_plan(context.shape, layers);
    const auto whole = estimator_.whole_bytes(key);
    if (!whole) {
      plan.reason = "policy mimose: every layer recomputed: the warm-up gave no samples";
      return plan;
    }
    std::vector<MimoseCandidate> candidates;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (!known_layer(layer)) continue;  // stays recomputed
      candidates.push_back({layer, *estimator_.layer_bytes(layer, key)});
      plan.modes[layer] = Mode::keep();
    }
    const auto base = static_cast<double>(context.base_bytes.count());
    const double limit =
        static_cast<double>(context.budget_bytes.count()) * (1 - options_.buffer_fraction);
    const double need = *whole - (limit - base);
    const std::vector<std::size_t> chosen = schedule_mimose(options_.rule, candidates, need);
    double left = need;
    for (const std::size_t layer : chosen) {
      plan.modes[layer] = Mode::full();
      left -= *estimator_.layer_bytes(layer, key);
    }
    plan.feasible = left <= 0;
    plan.predicted_peak_bytes = to_bytes(limit + left);
    plan.reason = reason(key, *whole, need, chosen.size(), layers);
    return plan;
  }

  [[nodiscard]] std::string reason(std::int64_t key, double whole, double need,
                                   std::size_t recomputed, std::size_t layers) const {
    const std::string rule = options_.rule == MimoseRule::kPaper ? "paper" : "code";
    return "policy mimose: size " + std::to_string(key) + " needs " +
           format_bytes(to_bytes(whole)) + " above base, " +
           (need > 0 ? format_bytes(to_bytes(need)) + " too many" : std::string("which fits")) +
           "; " + std::to_string(recomputed) + " of " + std::to_string(layers) +
           " layers recomputed (rule " + rule + ")";
  }

  MimosePolicyOptions options_;
  MimoseEstimator estimator_;
  bool fitted_ = false;
  std::vector<std::uint16_t> classes_;         // of the layers now; empty: not known yet
  std::vector<std::uint16_t> fitted_classes_;  // of the layers when the model was fitted
  std::uint64_t plans_made_ = 0;
  PlanPtr warmup_plan_;
  std::map<std::int64_t, PlanPtr> plans_;  // by rounded size
};

}  // namespace

std::unique_ptr<Policy> make_mimose_policy(const MimosePolicyOptions& options) {
  if (options.warmup_steps < 2) {
    throw BugError("mimose: a warm-up of " + std::to_string(options.warmup_steps) +
                   " steps, expected at least 2");
  }
  return std::make_unique<MimosePolicy>(options);
}

}  // namespace pudica
