// StoreWriter: writes to the store off the threads that serve, many of them in one transaction.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/store.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct StoreWriterOptions {
  std::size_t capacity = 16384;                         // entries waiting
  std::size_t capacity_bytes = std::size_t{32} << 20U;  // that they say they hold
  std::size_t batch = 1000;                             // entries that are not kept waiting
  std::chrono::milliseconds interval{500};              // the longest that others wait
  std::chrono::seconds prune_interval{60};
};

struct StoreWriterStats {
  std::int64_t written = 0;
  std::int64_t dropped = 0;  // no room, too late to stop, or the store failed
  std::int64_t failed = 0;   // returned an error or threw; the rest of its batch was written
  std::int64_t transactions = 0;
  std::size_t queued = 0;
};

// One thread of its own. Prunes the store at its interval and when it is full. Thread-safe; the
// store must outlive it.
class StoreWriter {
 public:
  // Runs within a transaction, twice where the first one failed: it must say the whole of what it
  // writes.
  using Task = std::function<Result<void>(Store&)>;

  explicit StoreWriter(Store& store, StoreWriterOptions options = {});
  ~StoreWriter();
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Never blocks on the store and never throws. False: dropped and counted. `bytes`: what the task
  // holds, about.
  bool post(Task task, std::size_t bytes = 0) noexcept;
  // Waits until everything posted so far was written or given up. False: not in time.
  bool flush(std::chrono::milliseconds timeout);
  // Writes what waits, for a second at most, and ends the thread. Later posts are dropped.
  void stop() noexcept;
  [[nodiscard]] StoreWriterStats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Task task;
    std::size_t bytes = 0;
  };

  void work() noexcept;
  // The next entries to write; empty: the time to stop has come.
  std::vector<Entry> take();
  void write(const std::vector<Entry>& entries);
  void prune_when_due();

  Store& store_;
  const StoreWriterOptions options_;
  const std::size_t batch_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;  // guarded by mutex_, as all below
  std::size_t queued_bytes_ = 0;
  std::uint64_t posted_ = 0;  // accepted
  std::uint64_t done_ = 0;    // of those
  std::uint64_t wanted_ = 0;  // flush() waits for it
  bool stopping_ = false;
  Clock::time_point deadline_;  // of stopping
  StoreWriterStats stats_;
  Clock::time_point pruned_at_;  // the thread's own
  std::thread thread_;           // last: begins when all else is there
};

}  // namespace pudica::daemon
