// PinnedPages: what of the bytes reserved from a device the allocator could not give back now. A
// page of an expandable segment, or a segment of a fixed size, is held whole by any block in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pudica::hooks {

// Not thread-safe.
class PinnedPages {
 public:
  // `bytes` from `address` on are reserved, and go back by `page_bytes`; 0: as a whole.
  void reserve(std::size_t address, std::int64_t bytes, std::int64_t page_bytes) {
    const std::int64_t page = page_bytes > 0 ? page_bytes : bytes;
    std::vector<Page> fresh;
    for (std::int64_t done = 0; done < bytes; done += page) {
      fresh.push_back({address + static_cast<std::size_t>(done), std::min(page, bytes - done), 0});
    }
    release(address, bytes);
    pages_.insert(first_from(address), fresh.begin(), fresh.end());
  }

  void release(std::size_t address, std::int64_t bytes) {
    const auto first = first_from(address);
    const auto last = first_from(address + static_cast<std::size_t>(bytes));
    for (auto at = first; at != last; ++at) {
      if (at->blocks > 0) bytes_ -= at->bytes;
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
    std::size_t address = 0;
    std::int64_t bytes = 0;
    std::int32_t blocks = 0;  // in use, in whole or in part
  };

  void count(std::size_t address, std::int64_t bytes, std::int32_t delta) {
    auto at = first_from(address + 1);
    if (at != pages_.begin()) --at;
    const std::size_t end = address + static_cast<std::size_t>(bytes);
    for (; at != pages_.end() && at->address < end; ++at) {
      Page& page = *at;
      if (page.address + static_cast<std::size_t>(page.bytes) <= address) continue;
      const bool was_pinned = page.blocks > 0;
      page.blocks += delta;
      const bool is_pinned = page.blocks > 0;
      if (was_pinned != is_pinned) bytes_ += is_pinned ? page.bytes : -page.bytes;
    }
  }

  // Of the pages, the first that begins there or behind it.
  std::vector<Page>::iterator first_from(std::size_t address) {
    return std::ranges::lower_bound(pages_, address, {}, &Page::address);
  }

  // By address. Each block made or freed looks here; pages come and go seldom.
  std::vector<Page> pages_;
  std::int64_t bytes_ = 0;
};

}  // namespace pudica::hooks
