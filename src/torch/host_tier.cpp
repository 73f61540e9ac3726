#include "torch/host_tier.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <c10/core/CPUAllocator.h>

namespace pudica::hooks {
namespace {

using Clock = TransferLink::Clock;

constexpr std::size_t kAlignment = 64;

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
  explicit SimulatedHostTier(const OffloadOptions& options)
      : pool_(std::make_shared<HostPool>(options.host_bytes)),
        out_(options.simulated_bytes_per_second),
        back_(options.simulated_bytes_per_second) {}

  std::unique_ptr<HostCopy> store(const c10::Storage& storage) override {
    const Clock::time_point begin = Clock::now();
    if (!storage.device().is_cpu() || storage.nbytes() == 0) return nullptr;
    auto copy = MemoryCopy::make(pool_, storage.nbytes());
    if (copy) std::memcpy(copy->memory(), storage.data(), storage.nbytes());
    const std::lock_guard lock(mutex_);
    if (copy) out_.begin(static_cast<std::int64_t>(storage.nbytes()), begin);
    out_seconds_ += since(begin);
    return copy;
  }

  bool holds(const HostCopy& copy, const c10::Storage& storage) override {
    const auto& held = static_cast<const MemoryCopy&>(copy);
    return held.bytes() == storage.nbytes() &&
           std::memcmp(held.memory(), storage.data(), held.bytes()) == 0;
  }

  double fence() override { return wait_for(out_, out_seconds_); }

  c10::Storage load(const HostCopy& copy) override {
    const Clock::time_point begin = Clock::now();
    const auto& from = static_cast<const MemoryCopy&>(copy);
    c10::Storage storage(c10::Storage::use_byte_size_t(), from.bytes(), c10::GetCPUAllocator());
    std::memcpy(storage.mutable_data(), from.memory(), from.bytes());
    const std::lock_guard lock(mutex_);
    back_.begin(static_cast<std::int64_t>(from.bytes()), begin);
    back_seconds_ += since(begin);
    return storage;
  }

  double arrive() override { return wait_for(back_, back_seconds_); }

  [[nodiscard]] HostPool& pool() override { return *pool_; }

 private:
  static double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Waits until the link is free; what the copies took is counted with it, once.
  double wait_for(TransferLink& link, double& seconds) {
    const Clock::time_point begin = Clock::now();
    Clock::time_point end;
    {
      const std::lock_guard lock(mutex_);
      end = link.free_at();
    }
    if (end > begin) std::this_thread::sleep_until(end);
    const std::lock_guard lock(mutex_);
    return std::exchange(seconds, 0.0) + (end > begin ? since(begin) : 0.0);
  }

  std::shared_ptr<HostPool> pool_;
  std::mutex mutex_;
  TransferLink out_;  // guarded by mutex_, like the rest
  TransferLink back_;
  double out_seconds_ = 0;
  double back_seconds_ = 0;
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
  std::int64_t peak = peak_bytes_.load();
  while (before + bytes > peak && !peak_bytes_.compare_exchange_weak(peak, before + bytes)) {
  }
  return true;
}

Clock::time_point TransferLink::begin(std::int64_t bytes, Clock::time_point now) {
  if (bytes_per_second_ <= 0) return now;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second_);
  free_at_ = std::max(free_at_, now) + std::chrono::duration_cast<Clock::duration>(takes);
  return free_at_;
}

std::shared_ptr<HostTier> make_simulated_host_tier(const OffloadOptions& options) {
  return std::make_shared<SimulatedHostTier>(options);
}

void register_cuda_host_tier(HostTierFactory factory) { cuda_factory().store(factory); }

std::shared_ptr<HostTier> make_host_tier(c10::Device device, const OffloadOptions& options) {
  if (device.is_cpu()) return make_simulated_host_tier(options);
  const HostTierFactory factory = cuda_factory().load();
  return device.is_cuda() && factory != nullptr ? factory(device, options) : nullptr;
}

}  // namespace pudica::hooks
