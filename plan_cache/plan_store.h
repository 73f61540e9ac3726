// PlanStore: cached plans with and without gradients and casts of weights, and which of them still
// hold.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pudica/plan_cache.h"
#include "pudica/policy.h"

namespace pudica {

// A plan rests on the predictions, on what is available and on the base bytes when it was made.
// Not thread-safe: one owner thread.
class PlanStore {
 public:
  PlanStore(const PlanCacheOptions& options, double ample_fraction);

  // nullptr: no plan, or one that no longer holds for this step.
  const CachedPlan* find(const StepContext& context, std::uint64_t step);
  void insert(const StepContext& context, CachedPlan plan, std::uint64_t step);
  // The choice to start from for this step; empty: none.
  [[nodiscard]] std::vector<std::uint8_t> warm_choice(const StepContext& context) const;

  // What the planner may use of the budget changed: drops the plans that this concerns.
  void available_changed(Bytes shrink);
  // Predictions made up to `step` may no longer hold.
  void predictions_changed(std::uint64_t step) { predictions_step_ = step; }
  // Likewise of times alone: plans that keep everything still hold.
  void times_changed(std::uint64_t step) { times_step_ = step; }
  void record_measured(const StepContext& context, Bytes peak_bytes);
  void erase(const StepContext& context);
  void clear();

  // Of the entry's plan in a step that begins like this.
  static Bytes predicted_peak(const CachedPlan& entry, const StepContext& context);

  [[nodiscard]] std::int64_t hits() const { return hits_; }
  [[nodiscard]] std::int64_t misses() const { return misses_; }
  // Most recently used first; those with casts present behind those without.
  [[nodiscard]] std::vector<const CachedPlan*> entries(bool gradients_present) const;

 private:
  static std::size_t place_of(bool gradients_present, bool casts_present) {
    return (gradients_present ? 1U : 0U) + (casts_present ? 2U : 0U);
  }
  [[nodiscard]] PlanCache& of(const StepContext& context) const {
    return *caches_[place_of(context.gradients_present, context.casts_present)];
  }
  [[nodiscard]] bool holds(const CachedPlan& entry, const StepContext& context) const;

  double ample_fraction_;
  std::array<std::unique_ptr<PlanCache>, 4> caches_;
  std::uint64_t predictions_step_ = 0;
  std::uint64_t times_step_ = 0;
  std::int64_t hits_ = 0;
  std::int64_t misses_ = 0;
};

}  // namespace pudica
