// PinnedPages: what of the bytes reserved from a device the allocator could not give back now. A
// page of an expandable segment, or a segment of a fixed size, is held whole by any block in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace pudica::hooks {

// Not thread-safe.
class PinnedPages {
 public:
  // `bytes` from `address` on are reserved, and go back by `page_bytes`; 0: as a whole.
  void reserve(std::size_t address, std::int64_t bytes, std::int64_t page_bytes) {
    const std::int64_t page = page_bytes > 0 ? page_bytes : bytes;
    for (std::int64_t done = 0; done < bytes; done += page) {
      pages_[address + static_cast<std::size_t>(done)] = {std::min(page, bytes - done), 0};
    }
  }

  void release(std::size_t address, std::int64_t bytes) {
    const auto first = pages_.lower_bound(address);
    const auto last = pages_.lower_bound(address + static_cast<std::size_t>(bytes));
    for (auto at = first; at != last; ++at) {
      if (at->second.blocks > 0) bytes_ -= at->second.bytes;
    }
    pages_.erase(first, last);
  }

  // A block of `bytes` there is in use from now on, or no longer.
  void take(std::size_t address, std::int64_t bytes) { count(address, bytes, 1); }
  void give(std::size_t address, std::int64_t bytes) { count(address, bytes, -1); }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  void clear() {
    pages_.clear();
    bytes_ = 0;
  }

 private:
  struct Page {
    std::int64_t bytes = 0;
    std::int32_t blocks = 0;  // in use, in whole or in part
  };

  void count(std::size_t address, std::int64_t bytes, std::int32_t delta) {
    auto at = pages_.upper_bound(address);
    if (at != pages_.begin()) --at;
    const std::size_t end = address + static_cast<std::size_t>(bytes);
    for (; at != pages_.end() && at->first < end; ++at) {
      Page& page = at->second;
      if (at->first + static_cast<std::size_t>(page.bytes) <= address) continue;
      const bool was_pinned = page.blocks > 0;
      page.blocks += delta;
      const bool is_pinned = page.blocks > 0;
      if (was_pinned != is_pinned) bytes_ += is_pinned ? page.bytes : -page.bytes;
    }
  }

  std::map<std::size_t, Page> pages_;  // by address
  std::int64_t bytes_ = 0;
};

}  // namespace pudica::hooks
