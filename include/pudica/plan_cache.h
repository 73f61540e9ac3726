// PlanCache: plans by exact shape key, each with the region of keys on which it holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/plan.h"
#include "pudica/shape_key.h"

namespace pudica {

// A cached plan and its record.
struct CachedPlan {
  PlanPtr plan;
  std::vector<std::uint8_t> choice;  // menu indices, for a warm start
  // Keys covered by some member of `fits_up_to` fit the budget with this plan (a staircase; one
  // member for one varying length). Empty: only the plan's own key is known to fit.
  std::vector<ShapeKey> fits_up_to;
  Bytes predicted_peak_bytes{0};
  Bytes measured_peak_bytes{0};  // last measured; 0: never
  Bytes slack_bytes{0};          // available minus the peak planned on, kept up to date
  Bytes base_bytes{0};           // live when the step began for which it was planned
  Bytes returning_bytes{0};      // and returning then
  // Predicted above the base: the peak until the forward returns, and of the whole step, both
  // without what returns.
  Bytes until_return_bytes{0};
  Bytes whole_bytes{0};
  // By how much what is planned on until the return lies below the whole peak planned on.
  Bytes until_return_room_bytes{0};
  std::int64_t hits = 0;
  std::uint64_t created_step = 0;
  std::uint64_t last_used_step = 0;
};

struct PlanCacheOptions {
  std::int64_t capacity = 512;  // plans, >= 1; the least recently used is evicted
};

// Lookup by exact key takes no allocation. Not thread-safe: one owner thread.
class PlanCache {
 public:
  virtual ~PlanCache() = default;

  // nullptr: miss. Counts a hit or a miss, marks the plan as used at `step`.
  virtual const CachedPlan* find(const ShapeKey& key, std::uint64_t step) = 0;
  virtual void insert(CachedPlan plan, std::uint64_t step) = 0;
  // The plan of the nearest key that covers `key` (least excess volume), for a warm start.
  [[nodiscard]] virtual const CachedPlan* nearest_longer(const ShapeKey& key) const = 0;
  virtual void record_measured(const ShapeKey& key, Bytes peak_bytes) = 0;
  // Drops the plans whose slack no longer covers a change of this many bytes in what is available
  // (budget, margin, base or prediction): shrink > 0 drops plans with slack < shrink; growth
  // (shrink < 0) drops plans that recompute anything, since a cheaper one may now fit.
  // Returns how many were dropped.
  virtual std::int64_t available_changed(Bytes shrink) = 0;
  virtual void erase(const ShapeKey& key) = 0;
  virtual void clear() = 0;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual std::int64_t hits() const = 0;
  [[nodiscard]] virtual std::int64_t misses() const = 0;
  // Most recently used first.
  [[nodiscard]] virtual std::vector<const CachedPlan*> entries() const = 0;
};

std::unique_ptr<PlanCache> make_lru_plan_cache(const PlanCacheOptions& options);

}  // namespace pudica
