#include "emulated_device/counts.h"

#include "emulated_device/memory.h"
#include "emulated_device/state.h"
#include "emulated_device/streams.h"

namespace pudica::emulated {

std::atomic<std::uint64_t>& launches() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::atomic<std::uint64_t>& products() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::atomic<double>& busy_us() {
  static std::atomic<double> count{0};
  return count;
}

std::atomic<double>& product_flops() {
  static std::atomic<double> count{0};
  return count;
}

std::atomic<std::uint64_t>& reads() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::atomic<std::uint64_t>& uploads() {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

}  // namespace pudica::emulated

extern "C" {

void emulated_device_counts(EmulatedDeviceCounts* counts) {
  using namespace pudica::emulated;
  const Guard guard(lock_of_all());
  const MemoryCounts memory = memory_counts();
  *counts = {launches().load(), products().load(), memory.mallocs,    memory.frees,
             memory.refused,    used_bytes(0),     memory.most_bytes, memory.pinned_bytes};
}

std::uint64_t emulated_device_reads(void) { return pudica::emulated::reads().load(); }

std::uint64_t emulated_device_uploads(void) { return pudica::emulated::uploads().load(); }

double emulated_device_busy_us(void) { return pudica::emulated::busy_us().load(); }

double emulated_device_product_flops(void) { return pudica::emulated::product_flops().load(); }

double emulated_device_host_us(void) { return pudica::emulated::host_us(); }

void emulated_device_spend(double microseconds) { pudica::emulated::spend(microseconds); }
}
