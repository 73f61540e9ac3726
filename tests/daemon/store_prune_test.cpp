// The store's bounds.
#include <filesystem>

#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

TEST(StorePrune, OldestEndedRunsGoFirstWithStepsAndPlans) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_runs = 3;
  const auto store = open_store(options);
  ASSERT_TRUE(store->save_run(run_at("live", 0)));  // the oldest, but it has not ended
  for (int i = 1; i <= 5; ++i) {
    const std::string id = "r" + std::to_string(i);
    ASSERT_TRUE(store->save_run(run_at(id, i, 100 - i)));  // those that began last ended first
    ASSERT_TRUE(store->add_steps(id, steps_from(0, 4)));
    ASSERT_TRUE(store->save_plans(id, "[]"));
  }
  ASSERT_TRUE(store->prune());
  const auto runs = store->runs(99);
  ASSERT_EQ(runs->size(), 3U);
  for (const char* kept : {"live", "r1", "r2"}) EXPECT_TRUE(store->run(kept)) << kept;
  EXPECT_EQ(store->steps("r1", 9)->size(), 4U);
  for (const char* gone : {"r3", "r4", "r5"}) {
    EXPECT_TRUE(store->steps(gone, 9)->empty()) << gone;
    EXPECT_FALSE(store->plans(gone)) << gone;
  }
}

TEST(StorePrune, ModelsGoByLeastRecentUse) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_models = 3;
  const auto store = open_store(options);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(store->save_model({"f" + std::to_string(i), "s", 1, 1, 1, time_at(i)}));
  }
  ASSERT_TRUE(store->save_model({"f0", "s", 2, 1, 1, time_at(9)}));  // used again
  ASSERT_TRUE(store->prune());
  const auto models = store->models();
  ASSERT_EQ(models->size(), 3U);
  EXPECT_EQ((*models)[0].fingerprint, "f0");
  EXPECT_EQ((*models)[1].fingerprint, "f5");
  EXPECT_EQ((*models)[2].fingerprint, "f4");
}

TEST(StorePrune, StepsAndPlansWithoutARunGo) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  ASSERT_TRUE(store->save_run(run_at("r1", 1)));
  for (const char* id : {"r1", "a", "z"}) {
    ASSERT_TRUE(store->add_steps(id, steps_from(0, 2)));
    ASSERT_TRUE(store->save_plans(id, "[]"));
  }
  ASSERT_TRUE(store->prune());
  EXPECT_EQ(store->steps("r1", 9)->size(), 2U);
  EXPECT_TRUE(store->plans("r1"));
  for (const char* id : {"a", "z"}) {
    EXPECT_TRUE(store->steps(id, 9)->empty());
    EXPECT_FALSE(store->plans(id));
  }
}

TEST(StorePrune, BoundsTheFileAndKeepsTheNewest) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_bytes = 2 << 20;
  const auto store = open_store(options);
  for (int i = 0; i < 60; ++i) {
    const std::string id = "r" + std::to_string(i);
    ASSERT_TRUE(store->save_run(run_at(id, i, 80 + i)));
    ASSERT_TRUE(store->add_steps(id, steps_from(0, 100, 400)));
    if (store->crowded()) {
      ASSERT_TRUE(store->prune());
    }
  }
  ASSERT_TRUE(store->prune());
  EXPECT_LE(*store->bytes_used(), options.max_bytes);
  EXPECT_LE(std::filesystem::file_size(options.path), static_cast<std::uintmax_t>(2 << 20));
  EXPECT_EQ(store->steps("r59", 999)->size(), 100U);
  EXPECT_FALSE(store->run("r0"));
}

TEST(StorePrune, BoundsTheFileWhereNoRunHasEnded) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_bytes = 1 << 20;
  const auto store = open_store(options);
  ASSERT_TRUE(store->save_run(run_at("r1", 1)));
  std::uint64_t written = 0;
  for (; !store->crowded(); written += 100) {
    ASSERT_TRUE(store->add_steps("r1", steps_from(written, 100, 400)));
  }
  ASSERT_TRUE(store->prune());
  EXPECT_FALSE(store->crowded());
  EXPECT_TRUE(store->run("r1"));
  const auto steps = store->steps("r1", 9999);
  ASSERT_FALSE(steps->empty());
  EXPECT_EQ(steps->back().step, written - 1);
}

TEST(StorePrune, AFullFileRefusesWritesUntilItIsPruned) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_bytes = 1 << 20;
  const auto store = open_store(options);
  ASSERT_TRUE(store->save_run(run_at("old", 1, 2)));
  Result<void> added;
  for (std::uint64_t i = 0; i < 100 && added; ++i) {
    added = store->add_steps("old", steps_from(100 * i, 100, 400));
  }
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kOverBudget) << added.error().message;
  EXPECT_LE(*store->bytes_used(), options.max_bytes);
  ASSERT_TRUE(store->prune());
  EXPECT_TRUE(store->save_run(run_at("new", 3)));
  EXPECT_TRUE(store->add_steps("new", steps_from(0, 100, 400)));
}

}  // namespace
}  // namespace pudica::daemon::testing
