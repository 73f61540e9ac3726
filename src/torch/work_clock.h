// The clock of what work costs: the thread's own CPU time, so that other programs on the machine
// do not make a layer look dearer than its neighbours.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <pthread.h>
#include <time.h>

namespace pudica::hooks {

// One reading, a system call of well under a microsecond. Thread-safe.
class WorkInstant {
 public:
  static WorkInstant now() noexcept {
    WorkInstant instant;
    instant.wall_ = std::chrono::steady_clock::now();
    instant.thread_ = pthread_self();
    timespec cpu{};
    constexpr std::int64_t kNsPerSecond = 1'000'000'000;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0) {
      instant.cpu_ns_ = kNsPerSecond * static_cast<std::int64_t>(cpu.tv_sec) + cpu.tv_nsec;
    }
    return instant;
  }

  // What passed since `begin`, whoever worked: of work on another device, waited for.
  [[nodiscard]] double passed_since(const WorkInstant& begin) const noexcept {
    return std::chrono::duration<double>(wall_ - begin.wall_).count();
  }

  // What the thread worked since `begin`; where that was another thread, the time that passed.
  [[nodiscard]] double seconds_since(const WorkInstant& begin) const noexcept {
    const double passed = passed_since(begin);
    if (pthread_equal(thread_, begin.thread_) == 0) return passed;
    return std::min(passed, 1e-9 * static_cast<double>(cpu_ns_ - begin.cpu_ns_));
  }

 private:
  std::chrono::steady_clock::time_point wall_;
  std::int64_t cpu_ns_ = 0;
  pthread_t thread_{};
};

}  // namespace pudica::hooks
