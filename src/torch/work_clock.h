// The clock of what work costs. On the CPU the thread's own CPU time, so that other programs on the
// machine do not make a layer look dearer than its neighbours; on a device that works on its own
// that device's time, known only when it has come there.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <pthread.h>
#include <utility>
#include <vector>

#include "pudica/work_clock.h"
#include "torch/device_clock.h"

namespace pudica::hooks {

// One reading of the host's clocks, a system call of well under a microsecond. Thread-safe.
class HostInstant {
 public:
  static HostInstant now() noexcept {
    HostInstant instant;
    instant.wall_ = std::chrono::steady_clock::now();
    instant.thread_ = pthread_self();
    timespec cpu{};
    constexpr std::int64_t kNsPerSecond = 1'000'000'000;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu) == 0) {
      instant.cpu_ns_ = kNsPerSecond * static_cast<std::int64_t>(cpu.tv_sec) + cpu.tv_nsec;
    }
    return instant;
  }
  // A reading of a clock that is set in place of the host's.
  static HostInstant at(double seconds) noexcept {
    HostInstant instant;
    instant.cpu_ns_ = std::llround(1e9 * seconds);
    instant.wall_ =
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(instant.cpu_ns_));
    instant.thread_ = pthread_self();
    return instant;
  }

  [[nodiscard]] std::chrono::steady_clock::time_point wall() const noexcept { return wall_; }

  // What passed since `begin`, whoever worked: of work on another device, waited for.
  [[nodiscard]] double passed_since(const HostInstant& begin) const noexcept {
    return std::chrono::duration<double>(wall_ - begin.wall_).count();
  }

  // What the thread worked since `begin`; where that was another thread, the time that passed.
  [[nodiscard]] double seconds_since(const HostInstant& begin) const noexcept {
    const double passed = passed_since(begin);
    if (pthread_equal(thread_, begin.thread_) == 0) return passed;
    return std::min(passed, 1e-9 * static_cast<double>(cpu_ns_ - begin.cpu_ns_));
  }

 private:
  std::chrono::steady_clock::time_point wall_;
  std::int64_t cpu_ns_ = 0;
  pthread_t thread_{};
};

// The host's clocks, or the one that is set in their place. Thread-safe.
class HostClock {
 public:
  HostClock() = default;
  // Null: the host's.
  explicit HostClock(std::shared_ptr<WorkClock> instead) : instead_(std::move(instead)) {}

  [[nodiscard]] bool is_set() const noexcept { return instead_ != nullptr; }
  [[nodiscard]] HostInstant now() const noexcept {
    return instead_ ? HostInstant::at(instead_->seconds()) : HostInstant::now();
  }

 private:
  std::shared_ptr<WorkClock> instead_;
};

// Of the host's clocks, of a device's, or of none.
struct WorkInstant {
  std::optional<HostInstant> host;
  std::shared_ptr<const DeviceInstant> device;
};

// Reads the clock that counts. Copies read the same one. Thread-safe.
class WorkTimer {
 public:
  // The host's; or that of a device, where it has one.
  WorkTimer() = default;
  explicit WorkTimer(HostClock host, std::shared_ptr<DeviceClock> clock = nullptr)
      : host_(std::move(host)), clock_(std::move(clock)) {}
  // Tells nothing, and costs nothing.
  static WorkTimer off() {
    WorkTimer timer;
    timer.is_off_ = true;
    return timer;
  }

  // For work that is waited for.
  [[nodiscard]] const HostClock& host() const noexcept { return host_; }

  [[nodiscard]] bool reads_host() const noexcept { return !is_off_ && !clock_; }
  [[nodiscard]] WorkInstant now() const noexcept {
    if (reads_host()) return {host_.now(), nullptr};
    return {std::nullopt, clock_ && !is_off_ ? clock_->now() : nullptr};
  }

 private:
  HostClock host_;
  std::shared_ptr<DeviceClock> clock_;
  bool is_off_ = false;
};

// A sum of stretches of work. Not thread-safe.
class WorkTime {
 public:
  void add(double seconds) {
    known_seconds_ += seconds;
    any_ = true;
  }
  // Stretches of which a clock told nothing are left out.
  void add(const WorkInstant& begin, const WorkInstant& end) {
    if (begin.host && end.host) {
      add(end.host->seconds_since(*begin.host));
    } else if (begin.device && end.device) {
      stretches_.emplace_back(begin.device, end.device);
      any_ = true;
    }
  }
  void add(const WorkTime& other) {
    known_seconds_ += other.known_seconds_;
    any_ = any_ || other.any_;
    stretches_.insert(stretches_.end(), other.stretches_.begin(), other.stretches_.end());
  }

  [[nodiscard]] bool empty() const { return !any_; }
  // All of it; nothing while the device has not come to some of it.
  [[nodiscard]] std::optional<double> seconds() const {
    double sum = known_seconds_;
    // The last first: what comes last is known last.
    for (std::size_t k = stretches_.size(); k-- > 0;) {
      const auto& [begin, end] = stretches_[k];
      const auto seconds = end->seconds_since(*begin);
      if (!seconds) return std::nullopt;
      sum += *seconds;
    }
    return sum;
  }

 private:
  using Stretch =
      std::pair<std::shared_ptr<const DeviceInstant>, std::shared_ptr<const DeviceInstant>>;

  double known_seconds_ = 0;
  bool any_ = false;
  std::vector<Stretch> stretches_;
};

}  // namespace pudica::hooks
