#include "torch/host_tier.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <c10/core/CPUAllocator.h>

#include "base/atomic_max.h"

namespace pudica::hooks {
namespace {

using Clock = TransferLink::Clock;

constexpr std::size_t kAlignment = 64;
// Of a copy in memory, where the clock is set: as an operator clock reckons what is read.
constexpr double kCopiedBytesPerSecond = 1e10;

class MemoryCopy final : public HostCopy {
 public:
  // Null: no room in the pool, or in the machine.
  static std::unique_ptr<MemoryCopy> make(std::shared_ptr<HostPool> pool, std::size_t bytes) {
    if (!pool->take(static_cast<std::int64_t>(bytes))) return nullptr;
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* const memory = std::aligned_alloc(kAlignment, rounded);
    if (memory == nullptr) {
      pool->give(static_cast<std::int64_t>(bytes));
      return nullptr;
    }
    return std::unique_ptr<MemoryCopy>(new MemoryCopy(std::move(pool), memory, bytes));
  }
  ~MemoryCopy() override {
    std::free(memory_);
    pool_->give(static_cast<std::int64_t>(bytes_));
  }
  MemoryCopy(const MemoryCopy&) = delete;
  MemoryCopy& operator=(const MemoryCopy&) = delete;

  [[nodiscard]] void* memory() const { return memory_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  MemoryCopy(std::shared_ptr<HostPool> pool, void* memory, std::size_t bytes)
      : pool_(std::move(pool)), memory_(memory), bytes_(bytes) {}

  std::shared_ptr<HostPool> pool_;
  void* memory_;
  std::size_t bytes_;
};

class SimulatedHostTier final : public HostTier {
 public:
  SimulatedHostTier(const OffloadOptions& options, HostClock clock)
      : pool_(std::make_shared<HostPool>(options.host_bytes)),
        clock_(std::move(clock)),
        out_(options.simulated_bytes_per_second),
        back_(options.simulated_bytes_per_second) {}

  std::unique_ptr<HostCopy> store(const c10::Storage& storage) override {
    const Clock::time_point begin = now();
    if (!storage.device().is_cpu() || storage.nbytes() == 0) return nullptr;
    auto copy = MemoryCopy::make(pool_, storage.nbytes());
    if (!copy) return nullptr;
    std::memcpy(copy->memory(), storage.data(), storage.nbytes());
    count(out_, static_cast<std::int64_t>(storage.nbytes()), begin);
    return copy;
  }

  bool holds(const HostCopy& copy, const c10::Storage& storage) override {
    const auto& held = static_cast<const MemoryCopy&>(copy);
    return held.bytes() == storage.nbytes() &&
           std::memcmp(held.memory(), storage.data(), held.bytes()) == 0;
  }

  double fence() override { return wait_for(out_); }

  c10::Storage load(const HostCopy& copy) override {
    const Clock::time_point begin = now();
    const auto& from = static_cast<const MemoryCopy&>(copy);
    const auto bytes = static_cast<std::int64_t>(from.bytes());
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::GetCPUAllocator());
    std::memcpy(storage.mutable_data(), from.memory(), from.bytes());
    count(back_, bytes, begin);
    return storage;
  }

  double arrive() override { return wait_for(back_); }

  [[nodiscard]] HostPool& pool() override { return *pool_; }

 private:
  struct Direction {
    explicit Direction(double bytes_per_second) : link(bytes_per_second) {}
    TransferLink link;
    double copying_seconds = 0;  // not yet told
  };

  [[nodiscard]] Clock::time_point now() const { return clock_.now().wall(); }
  [[nodiscard]] static double seconds_of(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }

  void count(Direction& direction, std::int64_t bytes, Clock::time_point begin) {
    const double took = clock_.is_set() ? static_cast<double>(bytes) / kCopiedBytesPerSecond
                                        : seconds_of(now() - begin);
    const std::lock_guard lock(mutex_);
    direction.link.begin(bytes, begin + not_waited_);
    direction.copying_seconds += took;
  }

  // Waits until the link is free; what the copies took is counted with it, once.
  double wait_for(Direction& direction) {
    const Clock::time_point begin = now();
    std::unique_lock lock(mutex_);
    const Clock::duration left = direction.link.free_at() - (begin + not_waited_);
    double waited = 0;
    if (left > Clock::duration::zero() && clock_.is_set()) {
      not_waited_ += left;
      waited = seconds_of(left);
    } else if (left > Clock::duration::zero()) {
      lock.unlock();
      std::this_thread::sleep_until(begin + left);
      waited = seconds_of(now() - begin);
      lock.lock();
    }
    return waited + std::exchange(direction.copying_seconds, 0.0);
  }

  std::shared_ptr<HostPool> pool_;
  const HostClock clock_;
  std::mutex mutex_;
  Direction out_;  // guarded by mutex_, like the rest
  Direction back_;
  // What a clock that is set does not see.
  Clock::duration not_waited_{0};
};

std::atomic<HostTierFactory>& cuda_factory() {
  static std::atomic<HostTierFactory> factory{nullptr};
  return factory;
}

}  // namespace

bool HostPool::take(std::int64_t bytes) {
  std::int64_t before = in_use_bytes_.load();
  do {
    if (before + bytes > capacity_bytes_) return false;
  } while (!in_use_bytes_.compare_exchange_weak(before, before + bytes));
  raise_to(peak_bytes_, before + bytes);
  return true;
}

Clock::time_point TransferLink::begin(std::int64_t bytes, Clock::time_point now) {
  if (bytes_per_second_ <= 0) return now;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
  free_at_ = std::max(free_at_, now) + std::chrono::duration_cast<Clock::duration>(takes);
  return free_at_;
}

std::shared_ptr<HostTier> make_simulated_host_tier(const OffloadOptions& options,
                                                   const HostClock& clock) {
  return std::make_shared<SimulatedHostTier>(options, clock);
}

void register_cuda_host_tier(HostTierFactory factory) { cuda_factory().store(factory); }

std::shared_ptr<HostTier> make_host_tier(c10::Device device, const OffloadOptions& options,
                                         const HostClock& clock) {
  if (device.is_cpu()) return make_simulated_host_tier(options, clock);
  const HostTierFactory factory = cuda_factory().load();
  return device.is_cuda() && factory != nullptr ? factory(device, options) : nullptr;
}

}  // namespace pudica::hooks
