#include "daemon/connection_pool.h"

#include <array>
#include <atomic>
#include <future>
#include <sys/socket.h>
#include <unistd.h>

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

TEST(ConnectionPool, ServesAsManyAtOnceAsAllowedAndNoMore) {
  ConnectionPool pool(2, wait_for_end);
  const Pair first;
  const Pair second;
  const Pair third;
  EXPECT_TRUE(pool.submit(first.ends[0]));
  EXPECT_TRUE(pool.submit(second.ends[0]));
  EXPECT_EQ(pool.open(), 2U);
  EXPECT_FALSE(pool.submit(third.ends[0]));
  ::close(first.ends[1]);
  while (pool.open() > 1) std::this_thread::yield();
  EXPECT_TRUE(pool.submit(third.ends[0]));
  ::close(second.ends[1]);
  ::close(third.ends[1]);
}

TEST(ConnectionPool, ClosesWhatItServed) {
  ConnectionPool pool(4, [](int fd) { EXPECT_EQ(::write(fd, "x", 1), 1); });
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
  ConnectionPool pool(2, wait_for_end);
  ASSERT_TRUE(pool.submit(pair.ends[0]));
  pool.stop();
  EXPECT_EQ(pool.open(), 0U);
  const Pair late;
  EXPECT_FALSE(pool.submit(late.ends[0]));
  for (const int fd : {pair.ends[1], late.ends[0], late.ends[1]}) ::close(fd);
}

}  // namespace
}  // namespace pudica::daemon
