#include "cuda/cuda_meter.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "cuda/budget_allocator.h"
#include "cuda/expandable_segments.h"
#include "torch/gap_habit.h"

namespace pudica::hooks {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr std::int64_t kMostDevices = 64;
constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

std::array<std::atomic<CudaMeter*>, kMostDevices> meters{};  // leaked: they outlive the allocator

// Of expandable segments; 0: they are not.
std::int64_t page_bytes() {
  return Config::use_expandable_segments() ? static_cast<std::int64_t>(Config::large_segment_size())
                                           : 0;
}

// Of `bytes` that were mapped: small blocks have pages of their own.
std::int64_t page_bytes_of(std::int64_t bytes) {
  const auto large = static_cast<std::int64_t>(Config::large_segment_size());
  return bytes % large == 0 ? large : segment_bytes(1);
}

}  // namespace

CudaMeter* find_cuda_meter(c10::DeviceIndex device) {
  if (device < 0 || device >= kMostDevices) return nullptr;
  return meters[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
}

CudaMeter::CudaMeter(c10::DeviceIndex device, TorchAllocator& inner)
    : device_(device), inner_(inner) {
  const c10::cuda::CUDAGuard guard(device);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  total_bytes_ = static_cast<std::int64_t>(total_bytes);
}

void CudaMeter::count_what_is_there() {
  std::int64_t in_use = 0;
  std::int64_t reserved = 0;
  for (const auto& segment : inner_.snapshot({0, 0}, /*include_traces=*/false).segments) {
    if (segment.device != device_) continue;
    const auto bytes = static_cast<std::int64_t>(segment.total_size);
    reserved += bytes;
    repin([&](PinnedPages& pages) {
      const std::int64_t page = segment.is_large ? page_bytes_of(bytes) : segment_bytes(1);
      pages.reserve(segment.address, bytes, segment.is_expandable ? page : 0);
    });
    std::size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      const std::int64_t taken = block_bytes(block.requested_size);
      if (block.active) {
        in_use += taken;
        repin([&](PinnedPages& pages) { pages.take(address, taken); });
      }
      address += block.size;
    }
  }
  counted_.store(true);
  // What was traced before the snapshot is in it.
  in_use_.fetch_add(in_use - in_use_at_snapshot_);
  reserved_.fetch_add(reserved - reserved_at_snapshot_);
  reset_peak();
}

void CudaMeter::reset_peak() {
  peak_.store(in_use_.load());
  reserved_peak_.store(reserved_.load());
  gap_at_cap_.store(0);
  squeezes_.store(0);
  active_peak_.store(0);
  pinned_peak_.store(pinned_.load());
  sample();
}

void CudaMeter::sample() {
  raise_to(active_peak_, inner_.getDeviceStats(device_).active_bytes[kAll].current);
}

bool CudaMeter::fits_in_pages(std::int64_t bytes) const {
  const std::int64_t page = page_bytes();
  return page > 0 && reserved_.load() + (bytes + page - 1) / page * page <= cap_.load();
}

void CudaMeter::note_gap() { raise_to(gap_at_cap_, pinned_.load() - in_use_.load()); }

std::optional<CacheBytes> CudaMeter::cache_bytes() const {
  const std::int64_t at_peak = std::max<std::int64_t>(0, pinned_peak_.load() - peak_.load());
  CacheBytes out;
  out.reserved_bytes = reserved_.load();
  out.reserved_peak_bytes = reserved_peak_.load();
  out.active_peak_bytes = std::max(active_peak_.load(), peak_.load());
  out.gap_bytes = std::max(at_peak, gap_at_cap_.load());
  out.reached_cap = gap_at_cap_.load() > 0;
  out.squeezes = squeezes_.load();
  out.page_bytes = page_bytes();
  return out;
}

void CudaMeter::set_fraction(double fraction) {
  if (fraction == fraction_) return;
  fraction_ = fraction;
  inner_.setMemoryFraction(fraction, device_);
}

std::string CudaMeter::expand_segments() { return ExpandableSegments::insist(device_); }

void CudaMeter::prefer_pages(bool preferred) {
  const std::lock_guard lock(limit_mutex_);
  if (preferred == prefers_pages_) return;
  prefers_pages_ = preferred;
  preferred ? ExpandableSegments::enter(device_) : ExpandableSegments::leave();
}

void CudaMeter::set_cap(std::int64_t cap_bytes, bool refuse) {
  prefer_pages(GapHabit::pages_are_better(cap_bytes, ExpandableSegments::kPageBytes));
  // Torch compares what it was asked for, and maps whole pages of expandable segments.
  limit_.store(cap_bytes > 0 ? std::max<std::int64_t>(1, cap_bytes - page_bytes()) : cap_bytes);
  {
    const std::lock_guard lock(limit_mutex_);
    const bool limit = cap_bytes > 0;
    if (limit && !limited_.load()) users_fraction_ = fraction_ = inner_.getMemoryFraction(device_);
    if (limit || limited_.load()) {  // else the user's own fraction stays as it is
      const double share = static_cast<double>(limit_.load()) / static_cast<double>(total_bytes_);
      set_fraction(limit ? std::min(users_fraction_, share) : users_fraction_);
    }
    limited_.store(limit);
  }
  refuse_.store(refuse);
  cap_.store(cap_bytes);
  if (cap_bytes > 0 && reserved_.load() > cap_bytes) inner_.emptyCache();
}

CudaMeter::Lifted::Lifted(CudaMeter& meter) : meter_(meter) {
  const std::lock_guard lock(meter_.limit_mutex_);
  if (meter_.lifts_++ == 0) meter_.inner_.setMemoryFraction(meter_.users_fraction_, meter_.device_);
}

CudaMeter::Lifted::~Lifted() {
  const std::lock_guard lock(meter_.limit_mutex_);
  if (--meter_.lifts_ == 0) meter_.inner_.setMemoryFraction(meter_.fraction_, meter_.device_);
}

void CudaMeter::trace(const caching::TraceEntry& entry) {
  switch (entry.action_) {
    case caching::TraceEntry::ALLOC:
      repin([&](PinnedPages& pages) { pages.take(entry.addr_, block_bytes(entry.size_)); });
      count(block_bytes(entry.size_), entry.addr_);
      break;
    case caching::TraceEntry::FREE_COMPLETED:
      repin([&](PinnedPages& pages) { pages.give(entry.addr_, block_bytes(entry.size_)); });
      count(-block_bytes(entry.size_), entry.addr_);
      break;
    case caching::TraceEntry::SEGMENT_ALLOC:
    case caching::TraceEntry::SEGMENT_MAP: {
      const auto bytes = static_cast<std::int64_t>(entry.size_);
      const bool maps = entry.action_ == caching::TraceEntry::SEGMENT_MAP;
      const std::int64_t page = maps ? page_bytes_of(bytes) : 0;
      repin([&](PinnedPages& pages) { pages.reserve(entry.addr_, bytes, page); });
      const std::int64_t now = reserved_.fetch_add(bytes) + bytes;
      raise_to(reserved_peak_, now);
      if (now > cap_.load() && cap_.load() > 0) overruns_.fetch_add(1);
      break;
    }
    case caching::TraceEntry::SEGMENT_FREE:
    case caching::TraceEntry::SEGMENT_UNMAP:
      reserved_.fetch_sub(static_cast<std::int64_t>(entry.size_));
      given_back_.fetch_add(static_cast<std::int64_t>(entry.size_));
      repin([&](PinnedPages& pages) {
        pages.release(entry.addr_, static_cast<std::int64_t>(entry.size_));
      });
      break;
    case caching::TraceEntry::SNAPSHOT:  // under the lock that it was taken under
      if (!counted_.load()) repin([](PinnedPages& pages) { pages.clear(); });
      in_use_at_snapshot_ = in_use_.load();
      reserved_at_snapshot_ = reserved_.load();
      break;
    default:
      break;
  }
}

void CudaMeter::count(std::int64_t delta, std::size_t address) {
  const std::int64_t now = in_use_.fetch_add(delta) + delta;
  raise_to(peak_, now);
  ForwardAccount::Freed freed;
  if (delta > 0) {
    if (const std::uint32_t forward = forwards_.made(delta)) made_in_[address] = forward;
  } else if (const auto made = made_in_.find(address); made != made_in_.end()) {
    freed = forwards_.freed(-delta, made->second);
    made_in_.erase(made);
  }
  if (!recorder_.any()) return;
  if (freed.is_this_steps && this_thread_is_recorded()) {
    recorder_.event(delta, reinterpret_cast<const void*>(address));
  }
  if (freed.all_has_returned) recorder_.forward_returned();
}

bool CudaMeter::is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

bool CudaMeter::revoke(std::int64_t missing_bytes) {
  const auto callback = pressure_.get();
  return callback != nullptr && (*callback)(missing_bytes);
}

// Only where nothing that the allocator has cached can serve: else it is left to try.
CudaMeter::Room CudaMeter::make_room(std::int64_t bytes) {
  for (;;) {
    const bool expandable = Config::use_expandable_segments();
    const std::int64_t missing =
        pinned_.load() + (expandable ? bytes : segment_bytes(bytes)) - limit_.load();
    if (missing <= 0) return Room::kPerhaps;
    std::size_t largest_cached = 1;  // 0 would ask the device for what it has free
    inner_.cacheInfo(device_, &largest_cached);
    if (static_cast<std::int64_t>(largest_cached) >= bytes) return Room::kPerhaps;
    if (!revoke(missing)) break;
  }
  note_gap();
  if (!refuse_.load()) inner_.emptyCache();  // what goes over the cap is not to be added to it
  return Room::kNone;
}

namespace {

// Throws c10::Error where this allocator cannot be counted, with the remedy.
void start_tracing(TorchAllocator& inner) {
  const std::string name = inner.name();
  TORCH_CHECK(name == "native", "torch's allocator is '", name,
              "', whose bytes cannot be counted block by block; expected 'native': leave "
              "backend:cudaMallocAsync out of PYTORCH_ALLOC_CONF, and use no pluggable allocator");
  inner.attachAllocatorTraceTracker([](const caching::TraceEntry& entry) {
    if (CudaMeter* meter = find_cuda_meter(entry.device_)) meter->trace(entry);
  });
}

Meter* cuda_meter(c10::Device device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  if (index < 0 || index >= kMostDevices || index >= c10::cuda::device_count()) return nullptr;
  if (CudaMeter* known = find_cuda_meter(index)) return known;
  // Before it there is no allocator to count for, nor one that a tracker could be attached to.
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  static TorchAllocator* inner = nullptr;
  if (inner == nullptr) {
    TorchAllocator* const present = caching::get();
    start_tracing(*present);
    inner = present;
    install_budget_allocator(*inner);
  }
  auto* meter = new CudaMeter(index, *inner);
  meters[static_cast<std::size_t>(index)].store(meter);
  meter->count_what_is_there();
  return meter;
}

[[maybe_unused]] const bool registered = [] {
  register_cuda_meter(&cuda_meter);
  return true;
}();

}  // namespace
}  // namespace pudica::hooks
