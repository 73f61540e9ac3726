#include "daemon/connection_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::daemon {
namespace {

// Both ends of a connection; closes the end that no pool took over.
struct Pair {
  std::array<int, 2> ends{-1, -1};
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0); }
};

void wait_for_end(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) > 0) {
  }
}

// Has its request at once, and works on it until the other side closes.
void work(ConnectionPool& pool, int fd) {
  if (pool.begin(fd)) wait_for_end(fd);
}

void say_goodbye(int fd) { EXPECT_EQ(::write(fd, "x", 1), 1); }

TEST(ConnectionPool, ServesAsManyAtOnceAsAllowedAndNoMore) {
  std::atomic<int> begun{0};
  ConnectionPool pool(
      2,
      [&begun](ConnectionPool& its, int fd) {
        EXPECT_TRUE(its.begin(fd));
        ++begun;
        wait_for_end(fd);
      },
      [](int) { ADD_FAILURE() << "a connection with a request is dismissed"; });
  const Pair first;
  const Pair second;
  const Pair third;
  EXPECT_TRUE(pool.submit(first.ends[0]));
  EXPECT_TRUE(pool.submit(second.ends[0]));
  EXPECT_EQ(pool.open(), 2U);
  while (begun < 2) std::this_thread::yield();
  EXPECT_FALSE(pool.submit(third.ends[0]));
  ::close(first.ends[1]);
  while (pool.open() > 1) std::this_thread::yield();
  EXPECT_TRUE(pool.submit(third.ends[0]));
  ::close(second.ends[1]);
  ::close(third.ends[1]);
}

TEST(ConnectionPool, LongestIdleGivesItsPlaceToANewOne) {
  std::atomic<int> served{0};
  std::vector<int> dismissed;  // by submit(), in this thread
  ConnectionPool pool(
      3,
      [&served](ConnectionPool& its, int fd) {
        wait_for_end(fd);
        if (!its.begin(fd)) ++served;
      },
      [&dismissed](int fd) {
        say_goodbye(fd);
        dismissed.push_back(fd);
      });
  std::array<Pair, 10> pairs;
  std::vector<int> expected;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    ASSERT_TRUE(pool.submit(pairs[i].ends[0]));
    EXPECT_EQ(pool.open(), std::min<std::size_t>(i + 1, 3));
    if (i + 3 < pairs.size()) expected.push_back(pairs[i].ends[0]);
  }
  EXPECT_EQ(dismissed, expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    char byte = 0;
    EXPECT_EQ(::read(pairs[i].ends[1], &byte, 1), 1) << "told";
    EXPECT_EQ(::read(pairs[i].ends[1], &byte, 1), 0) << "and closed";
  }
  while (served < 7) std::this_thread::yield();
  for (const Pair& pair : pairs) ::close(pair.ends[1]);
}

TEST(ConnectionPool, ConnectionsWithARequestKeepTheirPlaces) {
  std::atomic<int> begun{0};
  ConnectionPool pool(
      2,
      [&begun](ConnectionPool& its, int fd) {
        char byte = 0;
        if (::read(fd, &byte, 1) == 1 && its.begin(fd)) ++begun;
        wait_for_end(fd);
      },
      [](int) {});
  const Pair oldest;
  const Pair waiting;
  const Pair newest;
  ASSERT_TRUE(pool.submit(oldest.ends[0]));
  ASSERT_EQ(::write(oldest.ends[1], "r", 1), 1);
  while (begun < 1) std::this_thread::yield();
  ASSERT_TRUE(pool.submit(waiting.ends[0]));
  ASSERT_TRUE(pool.submit(newest.ends[0]));
  char byte = 0;
  EXPECT_EQ(::read(waiting.ends[1], &byte, 1), 0);  // the end: not the oldest one's
  EXPECT_EQ(::recv(oldest.ends[1], &byte, 1, MSG_DONTWAIT), -1);
  for (const Pair* const pair : {&oldest, &waiting, &newest}) ::close(pair->ends[1]);
}

TEST(ConnectionPool, ClosesWhatItServed) {
  ConnectionPool pool(
      4, [](ConnectionPool&, int fd) { EXPECT_EQ(::write(fd, "x", 1), 1); }, say_goodbye);
  for (int i = 0; i < 100; ++i) {
    const Pair pair;
    ASSERT_TRUE(pool.submit(pair.ends[0]));
    char byte = 0;
    EXPECT_EQ(::read(pair.ends[1], &byte, 1), 1);
    EXPECT_EQ(::read(pair.ends[1], &byte, 1), 0);  // the end
    ::close(pair.ends[1]);
  }
}

TEST(ConnectionPool, StopEndsConnectionsThatWait) {
  const Pair pair;
  ConnectionPool pool(2, work, say_goodbye);
  ASSERT_TRUE(pool.submit(pair.ends[0]));
  pool.stop();
  EXPECT_EQ(pool.open(), 0U);
  const Pair late;
  EXPECT_FALSE(pool.submit(late.ends[0]));
  for (const int fd : {pair.ends[1], late.ends[0], late.ends[1]}) ::close(fd);
}

}  // namespace
}  // namespace pudica::daemon
