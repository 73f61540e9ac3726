#include "daemon/store_writer.h"

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

constexpr std::chrono::seconds kLongEnough{20};
constexpr std::chrono::hours kNever{1};

// Holds a thread at a point until the test lets it go on.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    arrived_ = true;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kLongEnough, [this] { return open_; }));
  }
  void await_arrival() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLongEnough, [this] { return arrived_; }));
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
  bool open_ = false;
};

StoreWriter::Task saving(const std::string& id) {
  return [id](Store& store) { return store.save_run(run_at(id, 1)); };
}

class StoreWriterTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::unique_ptr<Store> store_ = open_store(folder_.file("store.db"));
};

TEST_F(StoreWriterTest, WritesWhatIsPosted) {
  StoreWriter writer(*store_);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(writer.post(saving("r" + std::to_string(i))));
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_EQ(store_->runs(99)->size(), 10U);
  EXPECT_EQ(writer.stats().written, 10);
  EXPECT_EQ(writer.stats().queued, 0U);
  EXPECT_TRUE(writer.flush(kLongEnough));  // nothing to wait for
}

TEST_F(StoreWriterTest, ManyGoInOneTransaction) {
  StoreWriterOptions options;
  options.interval = kNever;
  options.batch = 100;
  StoreWriter writer(*store_, options);
  Gate gate;
  ASSERT_TRUE(writer.post([&gate](Store&) {
    gate.wait();
    return Result<void>();
  }));
  std::thread flusher([&writer] { EXPECT_TRUE(writer.flush(kLongEnough)); });
  gate.await_arrival();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(writer.post(saving("r" + std::to_string(i))));
  gate.open();  // a full batch is not kept waiting for the interval
  flusher.join();
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_EQ(writer.stats().transactions, 2);
  EXPECT_EQ(store_->runs(999)->size(), 100U);
}

TEST_F(StoreWriterTest, WritesAfterItsIntervalWithoutBeingAsked) {
  StoreWriterOptions options;
  options.interval = std::chrono::milliseconds(1);
  StoreWriter writer(*store_, options);
  Gate gate;
  gate.open();
  ASSERT_TRUE(writer.post([&gate](Store&) {
    gate.wait();
    return Result<void>();
  }));
  gate.await_arrival();
}

TEST_F(StoreWriterTest, DropsAndCountsWhenFull) {
  StoreWriterOptions options;
  options.capacity = 5;
  options.batch = 1;
  StoreWriter writer(*store_, options);
  Gate gate;
  ASSERT_TRUE(writer.post([&gate](Store&) {
    gate.wait();
    return Result<void>();
  }));
  gate.await_arrival();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(writer.post(saving("r" + std::to_string(i))), i < 5) << i;
  }
  EXPECT_EQ(writer.stats().dropped, 3);
  EXPECT_EQ(writer.stats().queued, 5U);
  gate.open();
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_EQ(store_->runs(99)->size(), 5U);
}

TEST_F(StoreWriterTest, BoundsTheBytesThatWait) {
  StoreWriterOptions options;
  options.capacity_bytes = 100;
  options.interval = kNever;
  StoreWriter writer(*store_, options);
  EXPECT_TRUE(writer.post(saving("r1"), 60));
  EXPECT_FALSE(writer.post(saving("r2"), 60));
  EXPECT_TRUE(writer.post(saving("r3"), 40));
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_TRUE(writer.post(saving("r4"), 100));  // the others' bytes are free again
  writer.stop();
  EXPECT_EQ(store_->runs(99)->size(), 3U);
}

TEST_F(StoreWriterTest, AFailureDoesNotTakeTheOthersWithIt) {
  StoreWriter writer(*store_);
  EXPECT_TRUE(writer.post(saving("r1")));
  EXPECT_TRUE(writer.post([](Store&) -> Result<void> { return invalid_argument("no"); }));
  EXPECT_TRUE(writer.post([](Store&) -> Result<void> { throw std::runtime_error("odd"); }));
  EXPECT_TRUE(writer.post([](Store&) -> Result<void> { throw 7; }));
  EXPECT_TRUE(writer.post(nullptr));
  EXPECT_TRUE(writer.post(saving("r2")));
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_EQ(writer.stats().failed, 3);
  EXPECT_TRUE(store_->run("r1"));
  EXPECT_TRUE(store_->run("r2"));
}

TEST_F(StoreWriterTest, StopWritesWhatWaitsAndRefusesMore) {
  StoreWriterOptions options;
  options.interval = kNever;
  StoreWriter writer(*store_, options);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(writer.post(saving("r" + std::to_string(i))));
  writer.stop();
  EXPECT_EQ(store_->runs(99)->size(), 50U);
  EXPECT_FALSE(writer.post(saving("late")));
  EXPECT_EQ(writer.stats().dropped, 1);
  writer.stop();  // once more is harmless
}

TEST_F(StoreWriterTest, MakesRoomInAFullStoreAndWritesAgain) {
  const TemporaryFolder folder;
  StoreOptions small;
  small.path = folder.file("store.db");
  small.max_bytes = 1 << 20;
  const auto store = open_store(small);
  StoreWriterOptions options;
  options.batch = 4;
  StoreWriter writer(*store, options);
  for (int i = 0; i < 40; ++i) {
    const std::string id = "r" + std::to_string(i);
    ASSERT_TRUE(writer.post([id, i](Store& inner) -> Result<void> {
      auto saved = inner.save_run(run_at(id, i, i + 1));
      if (!saved) return saved;
      return inner.add_steps(id, steps_from(0, 50, 800));
    }));
  }
  ASSERT_TRUE(writer.flush(kLongEnough));
  EXPECT_EQ(writer.stats().dropped, 0);
  EXPECT_EQ(writer.stats().failed, 0);
  EXPECT_EQ(store->steps("r39", 99)->size(), 50U);
}

TEST_F(StoreWriterTest, FlushSaysWhenItIsNotInTime) {
  StoreWriter writer(*store_);
  Gate gate;
  ASSERT_TRUE(writer.post([&gate](Store&) {
    gate.wait();
    return Result<void>();
  }));
  EXPECT_FALSE(writer.flush(std::chrono::milliseconds(1)));
  gate.open();
  EXPECT_TRUE(writer.flush(kLongEnough));
}

}  // namespace
}  // namespace pudica::daemon::testing
