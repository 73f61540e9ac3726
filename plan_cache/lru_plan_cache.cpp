// The plan cache: a hash map over a list in order of use.
#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include "pudica/plan_cache.h"

namespace pudica {
namespace {

bool keeps_everything(const CachedPlan& entry) {
  return entry.plan->feasible &&
         std::ranges::all_of(entry.plan->modes, [](Mode mode) { return mode == Mode::keep(); });
}

// Product over the dimensions, as a double: only compared, never counted.
double volume(const ShapeKey& key) {
  double product = 1;
  for (const std::int64_t value : key.values()) product *= static_cast<double>(value);
  return product;
}

class LruPlanCache final : public PlanCache {
 public:
  explicit LruPlanCache(const PlanCacheOptions& options)
      : capacity_(static_cast<std::size_t>(std::max<std::int64_t>(1, options.capacity))) {
    index_.reserve(capacity_ + 1);
  }

  const CachedPlan* find(const ShapeKey& key, std::uint64_t step) override {
    const auto found = index_.find(key);
    if (found == index_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    CachedPlan& entry = *found->second;
    ++entry.hits;
    entry.last_used_step = step;
    return &entry;
  }

  void insert(CachedPlan plan, std::uint64_t step) override {
    if (plan.plan == nullptr) return;
    const ShapeKey key = plan.plan->shape;
    erase(key);
    plan.created_step = step;
    plan.last_used_step = step;
    entries_.push_front(std::move(plan));
    index_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) drop(std::prev(entries_.end()));
  }

  const CachedPlan* nearest_longer(const ShapeKey& key) const override {
    const CachedPlan* best = nullptr;
    double best_volume = 0;
    for (const CachedPlan& entry : entries_) {
      if (!entry.plan->shape.covers(key)) continue;
      const double entry_volume = volume(entry.plan->shape);
      if (best == nullptr || entry_volume < best_volume) {
        best = &entry;
        best_volume = entry_volume;
      }
    }
    return best;
  }

  void record_measured(const ShapeKey& key, Bytes peak_bytes) override {
    const auto found = index_.find(key);
    if (found != index_.end()) found->second->measured_peak_bytes = peak_bytes;
  }

  std::int64_t available_changed(Bytes shrink) override {
    std::int64_t dropped = 0;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto next = std::next(entry);
      const bool stale = shrink > Bytes(0) ? entry->slack_bytes < shrink
                                           : shrink < Bytes(0) && !keeps_everything(*entry);
      if (stale) {
        drop(entry);
        ++dropped;
      } else {
        // So that several small changes add up.
        entry->slack_bytes -= shrink;
      }
      entry = next;
    }
    return dropped;
  }

  void erase(const ShapeKey& key) override {
    const auto found = index_.find(key);
    if (found != index_.end()) drop(found->second);
  }

  void clear() override {
    index_.clear();
    entries_.clear();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t hits() const override { return hits_; }
  std::int64_t misses() const override { return misses_; }

  std::vector<const CachedPlan*> entries() const override {
    std::vector<const CachedPlan*> out;
    out.reserve(entries_.size());
    for (const CachedPlan& entry : entries_) out.push_back(&entry);
    return out;
  }

 private:
  using Entries = std::list<CachedPlan>;

  void drop(Entries::iterator entry) {
    index_.erase(entry->plan->shape);
    entries_.erase(entry);
  }

  std::size_t capacity_;
  Entries entries_;  // most recently used first
  std::unordered_map<ShapeKey, Entries::iterator> index_;
  std::int64_t hits_ = 0;
  std::int64_t misses_ = 0;
};

}  // namespace

std::unique_ptr<PlanCache> make_lru_plan_cache(const PlanCacheOptions& options) {
  return std::make_unique<LruPlanCache>(options);
}

}  // namespace pudica
