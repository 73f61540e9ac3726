// HostTier: memory beside a device's own, where saved tensors wait from forward to backward.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include "pudica/torch.h"

namespace pudica::hooks {

// The bytes of one storage in a tier. Gives its place back when it goes; any thread.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
};

// One a handle. Thread-safe. Holds at most `capacity_bytes`: what does not fit stays on the device.
class HostTier {
 public:
  virtual ~HostTier() = default;

  // Begins to copy a storage out; it must not be freed nor written before fence(). Null: no room,
  // or no such storage can be copied.
  virtual std::unique_ptr<HostCopy> store(const c10::Storage& storage) = 0;
  // Work on the device that is issued from now on comes after every copy out that was begun.
  // Seconds by which that holds it up.
  virtual double fence() = 0;
  // Begins to copy back, into new memory of the device, which must not be freed before arrive().
  // Throws where it cannot be had.
  virtual c10::Storage load(const HostCopy& copy) = 0;
  // Work that is issued from now on comes after every copy back that was begun. Seconds, as above.
  virtual double arrive() = 0;

  [[nodiscard]] virtual std::int64_t in_use_bytes() const = 0;
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
std::shared_ptr<HostTier> make_simulated_host_tier(const OffloadOptions& options);

// The tier of a device; null for one that has none (a CUDA device without pudica_torch_cuda).
std::shared_ptr<HostTier> make_host_tier(c10::Device device, const OffloadOptions& options);
using HostTierFactory = std::shared_ptr<HostTier> (*)(c10::Device device,
                                                      const OffloadOptions& options);
void register_cuda_host_tier(HostTierFactory factory);

}  // namespace pudica::hooks
