#include "daemon/turnstile.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::daemon {
namespace {

TEST(Turnstile, LetsInAsManyAsAllowedAndEverybodyInTheEnd) {
  constexpr int kMost = 3;
  constexpr int kThreads = 16;
  constexpr int kPasses = 200;
  Turnstile turnstile(kMost);
  std::atomic<int> inside{0};
  std::atomic<int> most_inside{0};
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int pass = 0; pass < kPasses; ++pass) {
        const Turnstile::Pass in(turnstile);
        const int now = ++inside;
        int seen = most_inside;
        while (now > seen && !most_inside.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::yield();
        --inside;
        ++passed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, kThreads * kPasses);
  EXPECT_LE(most_inside, kMost);
}

}  // namespace
}  // namespace pudica::daemon
