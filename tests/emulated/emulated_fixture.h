// For tests of the emulated device itself and of torch on it; skips where a program runs without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "emulated_device/counts.h"

namespace pudica::testing {

constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
constexpr std::int64_t kGiB = std::int64_t{1} << 30U;

class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Not where it was meant to be there.
    const bool meant = std::getenv("PUDICA_EMULATED_DEVICE") != nullptr;
    const bool there = find("emulated_device_counts") != nullptr;
    ASSERT_TRUE(there || !meant) << "the emulated device was not preloaded";
    if (!there) GTEST_SKIP() << "run it by scripts/emulated";
  }

  // The library is preloaded, not linked.
  static void* find(const char* name) { return dlsym(RTLD_DEFAULT, name); }

  static EmulatedDeviceCounts counts() {
    EmulatedDeviceCounts counts{};
    reinterpret_cast<void (*)(EmulatedDeviceCounts*)>(find("emulated_device_counts"))(&counts);
    return counts;
  }

  // Where the host is on the virtual clock.
  static double host_us() {
    return reinterpret_cast<double (*)()>(find("emulated_device_host_us"))();
  }

  // The host does something of its own for so long.
  static void spend(double microseconds) {
    reinterpret_cast<void (*)(double)>(find("emulated_device_spend"))(microseconds);
  }

  static std::int64_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<std::int64_t>(free);
  }
};

}  // namespace pudica::testing
