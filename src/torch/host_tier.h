// HostTier: memory beside a device's own, where saved tensors wait from forward to backward.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include "pudica/bytes.h"
#include "pudica/torch.h"
#include "torch/work_clock.h"

namespace pudica::hooks {

// The bytes that a tier holds. Shared by it and its copies, which may outlive it. Thread-safe.
class HostPool {
 public:
  explicit HostPool(Bytes capacity) : capacity_bytes_(capacity.count()) {}

  // False: no room.
  bool take(std::int64_t bytes);
  void give(std::int64_t bytes) { in_use_bytes_.fetch_sub(bytes); }

  [[nodiscard]] std::int64_t in_use_bytes() const { return in_use_bytes_.load(); }
  // The most at once since reset_peak().
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_.load(); }
  void reset_peak() { peak_bytes_.store(in_use_bytes_.load()); }

 private:
  const std::int64_t capacity_bytes_;
  std::atomic<std::int64_t> in_use_bytes_{0};
  std::atomic<std::int64_t> peak_bytes_{0};
};

// The bytes of one storage in a tier. Gives its place back when it goes; any thread.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
};

// One a handle. Thread-safe. Holds at most `capacity_bytes`: what does not fit stays on the device.
class HostTier {
 public:
  virtual ~HostTier() = default;

  // Begins to copy out what work issued so far leaves in a storage, which must not be freed before
  // fence(); where it is written before that, the copy is of no use. Null: no room, or no such
  // storage can be copied.
  virtual std::unique_ptr<HostCopy> store(const c10::Storage& storage) = 0;
  // The copy has the storage's bytes. Waits for the device.
  virtual bool holds(const HostCopy& copy, const c10::Storage& storage) = 0;
  // Work on the device that is issued from now on comes after every copy out that was begun.
  // Seconds by which that holds up the calling thread: 0 where it is the device that waits.
  virtual double fence() = 0;
  // Begins to copy back, into new memory of the device, which must not be freed before arrive().
  // Throws where it cannot be had.
  virtual c10::Storage load(const HostCopy& copy) = 0;
  // Work that is issued from now on comes after every copy back that was begun. Seconds, as above.
  virtual double arrive() = 0;

  [[nodiscard]] virtual HostPool& pool() = 0;
  [[nodiscard]] std::int64_t in_use_bytes() { return pool().in_use_bytes(); }
};

// What goes both ways over a link that carries so many bytes a second, one transfer after another;
// 0: takes no time. Not thread-safe.
class TransferLink {
 public:
  using Clock = std::chrono::steady_clock;
  explicit TransferLink(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  // A transfer is asked for at `now`; when it will have ended.
  Clock::time_point begin(std::int64_t bytes, Clock::time_point now);
  [[nodiscard]] Clock::time_point free_at() const { return free_at_; }

 private:
  double bytes_per_second_;
  Clock::time_point free_at_;
};

// The tier of a CPU device: memory that the meter does not count, behind a link of the bandwidth
// that the options give. Copies are made at once, and waited for as long as the link would take.
// Under a clock that is set they take what is reckoned from their bytes, and nobody waits.
std::shared_ptr<HostTier> make_simulated_host_tier(const OffloadOptions& options,
                                                   const HostClock& clock = {});

// The tier of a device; null for one that has none (a CUDA device without pudica_torch_cuda).
std::shared_ptr<HostTier> make_host_tier(c10::Device device, const OffloadOptions& options,
                                         const HostClock& clock = {});
using HostTierFactory = std::shared_ptr<HostTier> (*)(c10::Device device,
                                                      const OffloadOptions& options);
void register_cuda_host_tier(HostTierFactory factory);

}  // namespace pudica::hooks
