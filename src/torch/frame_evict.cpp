// Eviction of single storages by a rule, as often as it takes: each is recovered when it is read,
// and may go again as long as a backward still wants it.
#include <algorithm>
#include <limits>

#include "torch/frame.h"

namespace pudica::hooks {

void Frame::begin_eviction() {
  if (!options_.eviction || !menu_ || !menu_->nodes) return;
  eviction_ = std::make_unique<EvictionGraph>(menu_->nodes, eviction_seconds());
}

double Frame::eviction_seconds() const {
  return options_.eviction->clock.now().passed_since(options_.eviction->began);
}

std::int32_t Frame::storage_of_node(std::size_t node) const {
  const std::uint32_t slot = menu_->order[node];
  return slot < slots_.size() && slots_[slot].taped ? slots_[slot].storage : Tape::kNone;
}

std::int64_t Frame::evictable_bytes(std::size_t node) const {
  const std::int32_t storage = storage_of_node(node);
  if (storage == Tape::kNone || recovering_) return 0;
  const Tape::Stored& stored = tape_->stored()[static_cast<std::size_t>(storage)];
  // What the forward left may be what others are recovered from once a backward let go of the rest.
  if (stored.pinned) return consumed_ ? 0 : tape_->droppable_bytes(storage);
  const bool ours = stored.live && stored.live.use_count() == 1;
  return ours ? stored.bytes : 0;
}

// What came and went since, by reads and by their end.
void Frame::follow_evictions(std::int32_t read_storage) {
  if (!eviction_) return;
  const double now = eviction_seconds();
  for (std::size_t node = 0; node < eviction_->size(); ++node) {
    const std::int32_t storage = storage_of_node(node);
    if (storage == Tape::kNone) continue;
    const Tape::Stored& stored = tape_->stored()[static_cast<std::size_t>(storage)];
    const bool there = stored.live && stored.live_version == stored.version;
    if (there) eviction_->make_again(node, now);
    if (!there) eviction_->evict(node);
    if (storage == read_storage) eviction_->read(node, now);
  }
}

std::optional<Frame::NextEviction> Frame::next_eviction() const {
  if (!eviction_ || state_ != State::kTaped) return std::nullopt;
  const double now = eviction_seconds();
  std::optional<NextEviction> next;
  for (std::size_t node = 0; node < eviction_->size(); ++node) {
    const std::int64_t bytes = evictable_bytes(node);
    if (bytes <= 0) continue;
    EvictionControl& control = *options_.eviction;
    const double score = eviction_->score(control.rule, node, bytes, now, control.random);
    if (!next || score <= next->score) next = NextEviction{score, node};  // the last of equal ones
  }
  return next;
}

void Frame::evict(std::size_t node) {
  const std::int32_t storage = storage_of_node(node);
  Tape::Stored& stored = tape_->stored()[static_cast<std::size_t>(storage)];
  if (stored.pinned) {
    tape_->drop(storage);
  } else {
    stored.let_go_live();
  }
  eviction_->evict(node);
}

}  // namespace pudica::hooks
