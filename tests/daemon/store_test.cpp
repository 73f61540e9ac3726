#include "daemon/store.h"

#include <sys/stat.h>
#include <thread>

#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777U;
}

TEST(Store, MakesDirectoryAndFileForTheUserAlone) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("a/b/store.db"));
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->save_run(run_at("r1", 1)));  // the write-ahead log exists now
  EXPECT_EQ(mode_of(folder.file("a")), 0700U);
  EXPECT_EQ(mode_of(folder.file("a/b")), 0700U);
  EXPECT_EQ(mode_of(folder.file("a/b/store.db")), 0600U);
  EXPECT_EQ(mode_of(folder.file("a/b/store.db-wal")), 0600U);
}

TEST(Store, NarrowsTheModeOfAFileThatIsThere) {
  const TemporaryFolder folder;
  { ASSERT_NE(open_store(folder.file("store.db")), nullptr); }
  ASSERT_EQ(::chmod(folder.file("store.db").c_str(), 0644), 0);
  ASSERT_NE(open_store(folder.file("store.db")), nullptr);
  EXPECT_EQ(mode_of(folder.file("store.db")), 0600U);
}

TEST(Store, RefusesWhatIsNoFileAndNamesIt) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("");
  const auto opened = Store::open(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(opened.error().message.find(folder.file("")), std::string::npos);
}

TEST(Store, KeepsRunsOverAReopening) {
  const TemporaryFolder folder;
  {
    const auto store = open_store(folder.file("store.db"));
    ASSERT_TRUE(store->save_run(run_at("r1", 1)));
    ASSERT_TRUE(store->save_run(run_at("r2", 2)));
    StoredRun again = run_at("r1", 1, 9);
    again.summary_json = "{\"steps\":40}";
    ASSERT_TRUE(store->save_run(again));
  }
  const auto store = open_store(folder.file("store.db"));
  const auto runs = store->runs(10);
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ((*runs)[0].id, "r2");  // newest first
  EXPECT_EQ((*runs)[1].summary_json, "{\"steps\":40}");
  EXPECT_EQ((*runs)[1].status, "ok");
  EXPECT_EQ((*runs)[1].ended_at, time_at(9));
  EXPECT_EQ(store->runs(1)->size(), 1U);
}

TEST(Store, FindsARunByIdElseTheNewestOfTheName) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  ASSERT_TRUE(store->save_run(run_at("r1", 1)));
  ASSERT_TRUE(store->save_run(run_at("r2", 5)));
  StoredRun odd = run_at("r3", 0);
  odd.name = "r1";  // another run's id as its name
  ASSERT_TRUE(store->save_run(odd));
  EXPECT_EQ(store->run("r1")->id, "r1");
  EXPECT_EQ(store->run("train")->id, "r2");
  const auto missing = store->run("r'; DROP TABLE runs; --");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store->runs(9)->size(), 3U);
}

TEST(Store, KeepsPlansAndModels) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  ASSERT_TRUE(store->save_plans("r1", "[1]"));
  ASSERT_TRUE(store->save_plans("r1", "[2]"));
  EXPECT_EQ(*store->plans("r1"), "[2]");
  EXPECT_EQ(store->plans("r2").error().code, ErrorCode::kNotFound);
  const std::string state("a\0b'\n", 5);  // any bytes
  ASSERT_TRUE(store->save_model({"f1", state, 3, 2, 1, time_at(1)}));
  ASSERT_TRUE(store->save_model({"f2", "s", 1, 1, 1, time_at(2)}));
  ASSERT_TRUE(store->save_model({"f1", state, 4, 3, 2, time_at(3)}));
  const auto model = store->model("f1");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->state, state);
  EXPECT_EQ(model->recorded_steps, 4);
  EXPECT_EQ(model->distinct_shapes, 3);
  EXPECT_EQ(model->runs, 2);
  ASSERT_EQ(store->models()->size(), 2U);
  EXPECT_EQ(store->models()->front().fingerprint, "f1");
  EXPECT_EQ(store->model("f3").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(store->remove_model("f1"));
  ASSERT_TRUE(store->remove_model("f3")) << "which never was";
  EXPECT_EQ(store->model("f1").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(store->model("f2"));
}

TEST(Store, KeepsTheLastStepsOfARun) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_steps_per_run = 100;
  const auto store = open_store(options);
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(store->add_steps("r1", steps_from(30 * i, 30)));
  }
  ASSERT_TRUE(store->add_steps("r2", steps_from(7, 1)));
  const auto steps = store->steps("r1", 1000);
  ASSERT_TRUE(steps);
  ASSERT_EQ(steps->size(), 100U);
  EXPECT_EQ(steps->front().step, 200U);
  EXPECT_EQ(steps->back().step, 299U);
  EXPECT_EQ(store->steps("r1", 3)->front().step, 297U);
  EXPECT_EQ(store->steps("r2", 3)->size(), 1U);
  ASSERT_TRUE(store->add_steps("r1", std::vector<StoredStep>{{299, "new"}}));
  EXPECT_EQ(store->steps("r1", 1)->front().json, "new");
}

TEST(Store, RefusesAStepNumberThatItCannotKeep) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  const auto added = store->add_steps("r1", std::vector<StoredStep>{{~std::uint64_t{0}, "{}"}});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(added.error().message.find("18446744073709551615"), std::string::npos);
}

TEST(Store, EndsRunsThatNeverEnded) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  ASSERT_TRUE(store->save_run(run_at("r1", 1, 2)));
  ASSERT_TRUE(store->save_run(run_at("r2", 3)));
  EXPECT_EQ(*store->mark_unfinished("lost"), 1);
  EXPECT_EQ(store->run("r1")->status, "ok");
  EXPECT_EQ(store->run("r2")->status, "lost");
  EXPECT_EQ(store->run("r2")->ended_at.size(), time_at(0).size());
  EXPECT_EQ(*store->mark_unfinished("lost"), 0);
}

TEST(Store, TransactionWritesAllOrNothing) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  const auto failed = store->transaction([](Store& inner) -> Result<void> {
    EXPECT_TRUE(inner.save_run(run_at("r1", 1)));
    EXPECT_TRUE(inner.add_steps("r1", steps_from(0, 5)));
    return invalid_argument("no");
  });
  EXPECT_EQ(failed.error().message, "no");
  const auto threw = store->transaction([](Store& inner) -> Result<void> {
    EXPECT_TRUE(inner.save_run(run_at("r2", 1)));
    throw std::runtime_error("odd");
  });
  EXPECT_EQ(threw.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(store->runs(9)->empty());
  EXPECT_TRUE(store->steps("r1", 9)->empty());
  EXPECT_TRUE(store->transaction([](Store& inner) { return inner.save_run(run_at("r3", 1)); }));
  EXPECT_EQ(store->runs(9)->size(), 1U);
}

TEST(Store, RefusesANestedTransaction) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  const auto done = store->transaction([](Store& outer) {
    EXPECT_TRUE(outer.save_run(run_at("r1", 1)));
    EXPECT_FALSE(outer.prune());
    const auto nested = outer.transaction([](Store&) { return Result<void>(); });
    EXPECT_EQ(nested.error().code, ErrorCode::kInvalidArgument);
    return Result<void>();
  });
  EXPECT_TRUE(done);
  EXPECT_TRUE(store->run("r1"));
}

TEST(Store, ServesManyThreads) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      const std::string id = "r" + std::to_string(t);
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(store->transaction([&](Store& inner) -> Result<void> {
          auto saved = inner.save_run(run_at(id, i));
          if (!saved) return saved;
          return inner.add_steps(id, steps_from(static_cast<std::uint64_t>(i), 1));
        }));
        EXPECT_TRUE(store->runs(10));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t) {
    EXPECT_EQ(store->steps("r" + std::to_string(t), 99)->size(), 20U);
  }
}

}  // namespace
}  // namespace pudica::daemon::testing
