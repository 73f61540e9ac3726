// The highest of what several threads report.
#pragma once

#include <atomic>
#include <cstdint>

namespace pudica {

// Afterwards `highest` is at least `value`. Thread-safe, no lock.
inline void raise_to(std::atomic<std::int64_t>& highest, std::int64_t value) {
  std::int64_t seen = highest.load(std::memory_order_relaxed);
  while (value > seen && !highest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace pudica
