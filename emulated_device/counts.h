// What the emulated device counted, for tests and scripts: by dlsym or ctypes in the library that
// is preloaded.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {

struct EmulatedDeviceCounts {
  std::uint64_t launches;  // kernels
  std::uint64_t products;  // of cuBLAS
  std::uint64_t mallocs;   // on the device and pinned
  std::uint64_t frees;
  std::uint64_t refused;     // for want of memory
  std::uint64_t used_bytes;  // of the first device, like the next
  std::uint64_t most_bytes;
  std::uint64_t pinned_bytes;
};
void emulated_device_counts(EmulatedDeviceCounts* counts);
// Copies from a device to the host that were issued, and from the host to a device.
std::uint64_t emulated_device_reads(void);
std::uint64_t emulated_device_uploads(void);
// What all work takes that was issued, side by side or not: lag and waiting are no part of it.
double emulated_device_busy_us(void);
// Multiplications and additions of the products. Attention's own kernels do not tell theirs.
double emulated_device_product_flops(void);
// Where the host is on the virtual clock.
double emulated_device_host_us(void);
// The host does something of its own for so long.
void emulated_device_spend(double microseconds);
}

namespace pudica::emulated {

std::atomic<std::uint64_t>& launches();
std::atomic<std::uint64_t>& products();
std::atomic<double>& busy_us();
std::atomic<double>& product_flops();
std::atomic<std::uint64_t>& reads();
std::atomic<std::uint64_t>& uploads();

}  // namespace pudica::emulated
