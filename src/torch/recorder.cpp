#include "torch/recorder.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace pudica::hooks {

Recorder::Recorder(std::size_t event_capacity)
    : events_(event_capacity),
      places_(std::make_unique_for_overwrite<std::atomic<const void*>[]>(event_capacity)) {}

void Recorder::clear() {
  const std::lock_guard lock(mutex_);
  count_.store(0);
  returned_.store(kNone);
  watching_.store(0);
  marks_.clear();
}

std::size_t Recorder::watch(const void* data) {
  const std::size_t count = watching_.load(std::memory_order_relaxed);
  if (data == nullptr || count >= kMostWatched) return kMostWatched;
  watched_[count].data.store(data, std::memory_order_relaxed);
  watched_[count].freed_at.store(kNone, std::memory_order_relaxed);
  watching_.store(count + 1, std::memory_order_release);
  return count;
}

// The same address may be freed, used again, watched again.
void Recorder::note_freed(const void* data, std::int64_t index) {
  const std::size_t count = watching_.load(std::memory_order_acquire);
  for (std::size_t i = count; i-- > 0;) {
    if (watched_[i].data.load(std::memory_order_relaxed) != data) continue;
    std::int64_t none = kNone;
    watched_[i].freed_at.compare_exchange_strong(none, index);
    return;
  }
}

std::int64_t Recorder::freed_at(const void* data) const {
  const std::size_t count = watching_.load(std::memory_order_acquire);
  for (std::size_t i = count; i-- > 0;) {
    if (watched_[i].data.load(std::memory_order_relaxed) == data)
      return watched_[i].freed_at.load();
  }
  return kNone;
}

std::int64_t Recorder::freed_at(std::size_t watch) const {
  const std::size_t count = watching_.load(std::memory_order_acquire);
  return watch < count ? watched_[watch].freed_at.load() : kNone;
}

bool Recorder::was_made_by(std::int32_t layer, const void* data) const {
  std::int64_t begin = kNone;
  std::int64_t end = kNone;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = marks_.size(); i-- > 0 && begin == kNone;) {
      if (marks_[i].layer != layer) continue;
      if (marks_[i].kind == MarkKind::kForwardEnd) end = marks_[i].event;
      if (marks_[i].kind == MarkKind::kForwardBegin) begin = marks_[i].event;
    }
  }
  if (begin == kNone || end == kNone) return false;
  // Backwards: an address that was freed may have been handed out again since.
  const auto recorded = std::min(count_.load(), static_cast<std::int64_t>(events_.size()));
  for (std::int64_t i = recorded; i-- > begin;) {
    const auto event = static_cast<std::size_t>(i);
    if (events_[event] > 0 && places_[event].load(std::memory_order_relaxed) == data) {
      return i < end;
    }
  }
  return false;
}

void Recorder::mark(MarkKind kind, std::int32_t layer, std::int32_t steps_before) {
  const std::lock_guard lock(mutex_);
  marks_.push_back({kind, layer, count_.load(), timer_.now(), steps_before});
}

void Recorder::set_timer(WorkTimer timer) {
  const std::lock_guard lock(mutex_);
  timer_ = std::move(timer);
}

std::span<const std::int64_t> Recorder::events(std::int64_t begin, std::int64_t end) const {
  return {events_.data() + begin, static_cast<std::size_t>(end - begin)};
}

std::span<const std::atomic<const void*>> Recorder::places(std::int64_t begin,
                                                           std::int64_t end) const {
  return {places_.get() + begin, static_cast<std::size_t>(end - begin)};
}

std::vector<Mark> Recorder::marks() const {
  const std::lock_guard lock(mutex_);
  return marks_;
}

void RecorderSlot::set(Recorder* recorder) {
  constexpr int kMostYields = 1 << 16;  // after a fork a writer may be missing for ever
  recorder_.store(nullptr);             // so that no new writer comes
  for (int i = 0; i < kMostYields && writers_.load() != 0; ++i) std::this_thread::yield();
  recorder_.store(recorder);
}

}  // namespace pudica::hooks
