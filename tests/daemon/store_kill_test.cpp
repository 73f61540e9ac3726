// A process is killed (SIGKILL) while it writes, after a random number of writes: the store opens
// every time, undamaged, with every transaction that was acknowledged before.
#include <array>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sys/inotify.h>
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
    if (i % 7 == 0 || store.crowded()) (void)store.prune();
  }
}

// What happens to the files of a folder: the instants at which a test may kill.
class Changes {
 public:
  explicit Changes(const std::string& folder) : events_(::inotify_init1(IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(events_, folder.c_str(), IN_ALL_EVENTS), 0);
  }
  ~Changes() { ::close(events_); }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  // Until there were so many more, or nobody has the other end of the pipe `until` open.
  void wait(std::uint64_t count, int until) {
    const std::uint64_t wanted = seen_ + count;
    while (seen_ < wanted) {
      std::array<pollfd, 2> ready{{{events_, POLLIN, 0}, {until, 0, 0}}};
      if (::poll(ready.data(), ready.size(), -1) < 0) continue;
      if ((ready[0].revents & POLLIN) != 0) {
        read();
      } else if ((ready[1].revents & POLLHUP) != 0) {
        return;
      }
    }
  }

 private:
  void read() {
    alignas(inotify_event) std::array<char, 4096> buffer;
    const ssize_t got = ::read(events_, buffer.data(), buffer.size());
    for (ssize_t at = 0; at < got; ++seen_) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
    }
  }

  int events_;
  std::uint64_t seen_ = 0;
};

// Runs a writer and kills it so many changes of the folder after its first acknowledgement. Returns
// the transactions it acknowledged.
int run_and_kill(const TemporaryFolder& folder, int first, std::uint64_t changes) {
  Changes seen(folder.file(""));
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) write_until_killed(folder.file("store.db"), ends[1], first);
  ::close(ends[1]);
  char byte = 0;
  int acknowledged = static_cast<int>(::read(ends[0], &byte, 1));
  seen.wait(changes, ends[0]);
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
    const int acknowledged = run_and_kill(folder, next, random() % 300);
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
    Changes seen(folder.file(""));
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      StoreOptions options;
      options.path = path;
      ::_exit(Store::open(options) ? 0 : 1);
    }
    ::close(ends[1]);
    seen.wait(random() % 60, ends[0]);
    ::kill(child, SIGKILL);
    ::close(ends[0]);
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
