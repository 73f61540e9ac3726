// How the bytes that a store may take of the disk are divided.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pudica::daemon {

// The file and its journal together stay within `max_bytes`, of which the journal may have two
// parts: it is written back to the file at one, and a transaction is no larger than the other.
struct StoreLimits {
  std::int64_t journal_bytes = 0;      // at which it is written back
  std::int64_t transaction_bytes = 0;  // of what is to be written
  std::int64_t file_bytes = 0;         // a write beyond it fails
  std::int64_t crowded_bytes = 0;      // in use: time to prune
  std::int64_t pruned_bytes = 0;       // in use after that

  explicit StoreLimits(std::int64_t max_bytes)
      : journal_bytes(std::clamp<std::int64_t>(max_bytes / 8, std::int64_t{128} << 10,
                                               std::int64_t{16} << 20)),
        transaction_bytes(journal_bytes / 4),  // some pages more than what they are to hold
        file_bytes(max_bytes - 2 * journal_bytes),
        crowded_bytes(file_bytes / 10 * 9),
        pruned_bytes(file_bytes / 10 * 8) {}
};

}  // namespace pudica::daemon
