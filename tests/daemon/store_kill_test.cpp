// A process is killed (SIGKILL) while it writes, at random instants: the store opens every time,
// undamaged, with every transaction that was acknowledged before.
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

// Writes runs with steps for ever; acknowledges each by a byte.
[[noreturn]] void write_until_killed(const std::string& path, int acknowledge, int first) {
  StoreOptions options;
  options.path = path;
  options.max_bytes = 1 << 20;
  const auto opened = Store::open(options);
  if (!opened) ::_exit(1);
  Store& store = **opened;
  for (int i = first;; ++i) {
    const std::string id = "r" + std::to_string(i);
    const auto done = store.transaction([&](Store& inner) -> Result<void> {
      auto saved = inner.save_run(run_at(id, i % 3600));
      if (saved) saved = inner.add_steps(id, steps_from(0, 10, 200));
      if (saved) saved = inner.save_model({"f", std::string(5000, 's'), i, 1, 1, time_at(1)});
      return saved;
    });
    if (!done || ::write(acknowledge, "x", 1) != 1) ::_exit(2);
    if (i % 7 == 0) (void)store.prune();
  }
}

// Runs a writer and kills it `delay` after its first acknowledgement. Returns the transactions it
// acknowledged.
int run_and_kill(const std::string& path, int first, std::chrono::microseconds delay) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) write_until_killed(path, ends[1], first);
  ::close(ends[1]);
  char byte = 0;
  int acknowledged = static_cast<int>(::read(ends[0], &byte, 1));
  ::usleep(static_cast<useconds_t>(delay.count()));
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  while (::read(ends[0], &byte, 1) == 1) ++acknowledged;
  ::close(ends[0]);
  return acknowledged;
}

TEST(StoreKill, OpensAfterEveryKillWithWhatWasAcknowledged) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store.db");
  std::mt19937_64 random(5);
  int next = 0;
  for (int round = 0; round < 40; ++round) {
    const int acknowledged = run_and_kill(path, next, std::chrono::microseconds(random() % 30000));
    ASSERT_GT(acknowledged, 0);
    const auto store = open_store(path);
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(folder.names_with("corrupt").empty()) << "round " << round;
    const std::string last = "r" + std::to_string(next + acknowledged - 1);
    EXPECT_TRUE(store->run(last)) << last;
    EXPECT_GE(store->model("f")->recorded_steps, next + acknowledged - 1);
    next += acknowledged + 1;
    ASSERT_TRUE(store->mark_unfinished("lost"));
  }
}

TEST(StoreKill, OpensAfterKillsDuringTheFirstOpening) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const std::string path = folder.file("store.db");
    const pid_t child = ::fork();
    if (child == 0) {
      StoreOptions options;
      options.path = path;
      ::_exit(Store::open(options) ? 0 : 1);
    }
    ::usleep(static_cast<useconds_t>(random() % 12000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const auto store = open_store(path);
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->save_run(run_at("r1", 1)));
    EXPECT_TRUE(folder.names_with("corrupt").empty());
  }
}

}  // namespace
}  // namespace pudica::daemon::testing
