// Goal: the database takes no more of the disk than it is allowed to, its journal included, at any
// time, however fast it is written to. Method: a writer's load of some times the limit, and a look
// at the files after every transaction and, in a thread of its own, in between.
#include <atomic>
#include <thread>

#include "daemon/store_support.h"
#include "daemon/store_writer.h"

namespace pudica::daemon {
namespace {

using testing::open_store;
using testing::run_at;
using testing::steps_from;
using testing::TemporaryFolder;

std::int64_t bytes_of(const std::string& path) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  return missing ? 0 : static_cast<std::int64_t>(size);
}

std::int64_t on_disk(const std::string& path) { return bytes_of(path) + bytes_of(path + "-wal"); }

class StoreSize : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(StoreSize, NeverExceedsWhatItIsAllowed) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.max_bytes = GetParam() << 20;
  const auto store = open_store(options);
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> most{0};
  std::thread watcher([&] {
    while (!done) most = std::max(most.load(), on_disk(options.path));
  });
  StoreWriter writer(*store);
  constexpr std::size_t kStepBytes = 400;
  const std::int64_t batches =
      4 * options.max_bytes / (100 * static_cast<std::int64_t>(kStepBytes));
  for (std::int64_t i = 0; i < batches; ++i) {
    const auto ended = static_cast<int>(i % 5);
    const std::string id = "r" + std::to_string(i / 5);
    ASSERT_TRUE(writer.post(
        [=](Store& to) {
          auto saved = to.save_run(run_at(id, 1, ended == 4 ? 2 : 0));
          return saved ? to.add_steps(id, steps_from(static_cast<std::uint64_t>(100 * ended), 100,
                                                     kStepBytes))
                       : saved;
        },
        100 * kStepBytes));
    if (i % 50 == 49) {
      ASSERT_TRUE(writer.flush(std::chrono::seconds(60)));
    }
  }
  writer.stop();
  done = true;
  watcher.join();
  EXPECT_LE(most, options.max_bytes);
  EXPECT_GE(*store->bytes_used(), options.max_bytes / 2) << "and what is allowed is used";
  EXPECT_EQ(writer.stats().dropped, 0);
  RecordProperty("most_bytes", std::to_string(most));
}

INSTANTIATE_TEST_SUITE_P(MebiBytes, StoreSize, ::testing::Values(2, 16));

}  // namespace
}  // namespace pudica::daemon
