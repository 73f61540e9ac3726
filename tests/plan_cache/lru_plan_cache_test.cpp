#include <algorithm>
#include <list>
#include <random>

#include <gtest/gtest.h>

#include "pudica/plan_cache.h"

namespace pudica {
namespace {

CachedPlan entry(const ShapeKey& shape, std::int64_t slack, bool recomputes) {
  Plan plan;
  plan.shape = shape;
  plan.modes = {Mode::keep(), recomputes ? Mode::full() : Mode::keep()};
  CachedPlan out;
  out.plan = std::make_shared<const Plan>(std::move(plan));
  out.slack_bytes = Bytes(slack);
  return out;
}

TEST(LruPlanCache, CountsHitsAndMisses) {
  const auto cache = make_lru_plan_cache({});
  EXPECT_EQ(cache->find(ShapeKey{4, 8}, 1), nullptr);
  cache->insert(entry({4, 8}, 0, false), 1);
  const CachedPlan* found = cache->find(ShapeKey{4, 8}, 7);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->plan->shape, (ShapeKey{4, 8}));
  EXPECT_EQ(found->hits, 1);
  EXPECT_EQ(found->created_step, 1u);
  EXPECT_EQ(found->last_used_step, 7u);
  EXPECT_EQ(cache->hits(), 1);
  EXPECT_EQ(cache->misses(), 1);
}

TEST(LruPlanCache, ReplacesThePlanOfTheSameKey) {
  const auto cache = make_lru_plan_cache({});
  cache->insert(entry({4, 8}, 1, false), 1);
  cache->insert(entry({4, 8}, 2, true), 2);
  EXPECT_EQ(cache->size(), 1);
  EXPECT_EQ(cache->find(ShapeKey({4, 8}), 3)->slack_bytes, Bytes(2));
}

TEST(LruPlanCache, WarmStartIsTheLeastLongerKey) {
  const auto cache = make_lru_plan_cache({});
  EXPECT_EQ(cache->nearest_longer({4, 8}), nullptr);
  for (const std::int64_t length : {4, 16, 12, 64}) {
    cache->insert(entry({4, length}, 0, false), 1);
  }
  cache->insert(entry({3, 11}, 0, false), 1);
  EXPECT_EQ(cache->nearest_longer({4, 8})->plan->shape, (ShapeKey{4, 12}));
  EXPECT_EQ(cache->nearest_longer({4, 65}), nullptr);
  EXPECT_EQ(cache->nearest_longer({4}), nullptr);
}

TEST(LruPlanCache, ShrinkDropsPlansWithoutTheSlackAndAddsUp) {
  const auto cache = make_lru_plan_cache({});
  cache->insert(entry({1, 1}, 100, true), 1);
  cache->insert(entry({1, 2}, 50, false), 1);
  EXPECT_EQ(cache->available_changed(Bytes(60)), 1);
  EXPECT_EQ(cache->size(), 1);
  EXPECT_EQ(cache->available_changed(Bytes(41)), 1) << "40 bytes of slack were left";
  EXPECT_EQ(cache->size(), 0);
}

TEST(LruPlanCache, GrowthDropsPlansThatRecompute) {
  const auto cache = make_lru_plan_cache({});
  cache->insert(entry({1, 1}, 100, true), 1);
  cache->insert(entry({1, 2}, 50, false), 1);
  EXPECT_EQ(cache->available_changed(Bytes(-10)), 1);
  ASSERT_EQ(cache->size(), 1);
  EXPECT_EQ(cache->entries()[0]->plan->shape, (ShapeKey{1, 2}));
  EXPECT_EQ(cache->entries()[0]->slack_bytes, Bytes(60));
}

TEST(LruPlanCache, RecordsWhatWasMeasured) {
  const auto cache = make_lru_plan_cache({});
  cache->insert(entry({1, 1}, 0, false), 1);
  cache->record_measured({1, 1}, Bytes(77));
  cache->record_measured({9, 9}, Bytes(78));
  EXPECT_EQ(cache->entries()[0]->measured_peak_bytes, Bytes(77));
}

// Against a plain list of keys in order of use, over random calls.
TEST(LruPlanCache, EvictsTheLeastRecentlyUsed) {
  constexpr std::uint64_t kSeed = 20240601;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  constexpr std::int64_t kCapacity = 7;
  const auto cache = make_lru_plan_cache({kCapacity});
  std::list<std::int64_t> model;
  for (std::uint64_t step = 1; step < 5000; ++step) {
    const auto length = static_cast<std::int64_t>(random() % 15 + 1);
    const ShapeKey key{2, length};
    const auto known = std::ranges::find(model, length);
    const auto action = random() % 10;
    if (action == 0) {
      cache->erase(key);
      if (known != model.end()) model.erase(known);
    } else if (action < 4) {
      cache->insert(entry(key, 0, false), step);
      if (known != model.end()) model.erase(known);
      model.push_front(length);
      if (model.size() > kCapacity) model.pop_back();
    } else {
      EXPECT_EQ(cache->find(key, step) != nullptr, known != model.end());
      if (known != model.end()) model.splice(model.begin(), model, known);
    }
    const auto entries = cache->entries();
    ASSERT_EQ(entries.size(), model.size());
    std::size_t at = 0;
    for (const std::int64_t wanted : model) ASSERT_EQ(entries[at++]->plan->shape[1], wanted);
  }
  cache->clear();
  EXPECT_EQ(cache->size(), 0);
}

}  // namespace
}  // namespace pudica
