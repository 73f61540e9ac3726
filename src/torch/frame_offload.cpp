// The frame's third strategy: what it saved waits in a host tier and is copied back when asked for.
#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "torch/frame.h"
#include "torch/frame_versions.h"
#include "torch/meter.h"
#include "torch/rebound.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

// Smaller ones are not worth a transfer.
constexpr std::size_t kLeastBytes = 2048;

bool is_worth_a_copy(const c10::Storage& storage, c10::Device device) {
  return storage.device().type() == device.type() && storage.nbytes() >= kLeastBytes;
}

// A copy ahead of its time must push nothing out.
bool has_room(c10::Device device, std::int64_t bytes) {
  const Meter* meter = meter_for(device);
  if (meter == nullptr || meter->cap_bytes() <= 0) return true;
  return meter->in_use_bytes() + bytes <= meter->cap_bytes();
}

}  // namespace

void Frame::begin_offload() {
  if (!options_.host || !options_.offload_habit || !options_.store || !slots_.empty()) return;
  if (tape_ || !tape_available()) return;  // writes could not be seen
  early_slots_ = options_.offload_habit->early_slots();
  if (!early_slots_.empty()) writes_ = std::make_unique<WriteWatch>();
}

// Runs inside the user's operators, where nothing of ours may throw: what cannot begin now is tried
// again when the layer ends.
void Frame::copy_early(std::size_t index) noexcept {
  if (!std::ranges::binary_search(early_slots_, index)) return;
  const at::Tensor& tensor = slots_[index].tensor;
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  if (!is_worth_a_copy(storage, options_.device)) return;
  try {
    writes_->watch(storage);
    auto copy = options_.host->store(storage);
    if (copy) early_copies_.push_back({index, std::move(copy)});
  } catch (...) {
    early_slots_.clear();
  }
}

// Null: none began when its last slot was saved, or something was written since.
std::unique_ptr<HostCopy> Frame::take_early(const OwnedStorage& owned) {
  const auto last = static_cast<std::size_t>(owned.slots.back() - slots_.data());
  const auto found = std::ranges::lower_bound(early_copies_, last, {}, &EarlyCopy::slot);
  if (found == early_copies_.end() || found->slot != last || !found->copy) return nullptr;
  const bool modified = std::ranges::any_of(owned.slots, [](const Slot* slot) {
    return slot->tensor.is_inference() || version_of(slot->tensor) != slot->version;
  });
  if (modified) return nullptr;
  const c10::Storage& storage = owned.slots.front()->tensor.storage();
  const WriteWatch::Writes writes = writes_->writes(storage);
  if (!options_.offload_habit->must_compare()) {
    return writes == WriteWatch::Writes::kNone ? std::move(found->copy) : nullptr;
  }
  ++early_compared_;
  if (writes == WriteWatch::Writes::kCertain) return nullptr;
  if (!options_.host->holds(*found->copy, storage)) return nullptr;
  ++early_equal_;
  return std::move(found->copy);
}

// What was saved there is let go: nothing may come in its place before it is copied.
void Frame::drop_early(std::size_t index) noexcept {
  const auto found = std::ranges::lower_bound(early_copies_, index, {}, &EarlyCopy::slot);
  if (found == early_copies_.end() || found->slot != index) return;
  try {
    options_.host->fence();
  } catch (...) {  // NOLINT(bugprone-empty-catch) as in end_copies()
  }
  early_copies_.erase(found);
}

// All that nobody else holds goes, or nothing does: where the tier has no room for one storage the
// frame stays kept. Inputs and outputs stay, which the layers around hold, and what is no memory of
// the device (seeds of random operators).
void Frame::settle_offload() {
  std::vector<OwnedStorage> owned = owned_storages();
  std::erase_if(owned, [this](const OwnedStorage& one) {
    return !is_worth_a_copy(one.slots.front()->tensor.storage(), options_.device);
  });
  std::vector<std::uint32_t> copied;
  std::vector<Hosted> hosted;
  hosted.reserve(owned.size());
  for (const OwnedStorage& one : owned) {
    const c10::Storage& storage = one.slots.front()->tensor.storage();
    Hosted away;
    away.bytes = static_cast<std::int64_t>(storage.nbytes());
    away.copy = take_early(one);
    if (!away.copy) away.copy = options_.host->store(storage);
    if (!away.copy) break;
    hosted.push_back(std::move(away));
    copied.push_back(static_cast<std::uint32_t>(one.slots.back() - slots_.data()));
  }
  wait_for(&HostTier::fence);
  early_copies_.clear();
  writes_.reset();
  if (hosted.size() < owned.size() || owned.empty()) return;
  if (options_.offload_habit) {
    std::ranges::sort(copied);
    options_.offload_habit->learn(std::move(copied), early_compared_, early_equal_);
  }
  for (std::size_t k = 0; k < owned.size(); ++k) {
    for (Slot* const slot : owned[k].slots) {
      if (!slot->tensor.is_inference()) {
        slot->version_handle = torch::autograd::impl::version_counter(slot->tensor);
      }
      slot->tensor = rebound(slot->tensor, no_bytes());
      slot->hosted = static_cast<std::int32_t>(k);
    }
  }
  hosted_ = std::move(hosted);
  state_ = State::kOffloaded;
}

at::Tensor Frame::unpack_hosted(std::size_t index) {
  Slot& slot = slots_[index];
  if (slot.version_handle.enabled()) {
    require_unmodified(slot.version_handle.current_version(), slot.version);
  }
  const int task = torch::autograd::get_current_graph_task_id();
  bring_back(slot.hosted);
  wait_for(&HostTier::arrive);
  Hosted& hosted = hosted_[static_cast<std::size_t>(slot.hosted)];
  at::Tensor tensor = rebound(slot.tensor, hosted.device);
  slot.done_task = task;
  let_go_of_read(task);
  // While this one is worked on the next one comes: backwards ask in the reverse of the order in
  // which forwards saved.
  if (task >= 0) fetch_ahead(slot.hosted, task);
  return tensor;
}

void Frame::wait_for(double (HostTier::*copies)()) {
  const WorkInstant begin = options_.timer.now();
  const double seconds = (*options_.host.*copies)();
  if (options_.timer.reads_host()) {
    recovery_.add(seconds);
  } else {
    recovery_.add(begin, options_.timer.now());
  }
}

void Frame::bring_back(std::int32_t hosted) {
  Hosted& wanted = hosted_[static_cast<std::size_t>(hosted)];
  if (!wanted.device) wanted.device = options_.host->load(*wanted.copy);
}

void Frame::fetch_ahead(std::int32_t behind, int task) {
  const std::vector<bool> wanted = hosted_wanted(task);
  for (std::int32_t k = behind - 1; k >= 0; --k) {
    const auto next = static_cast<std::size_t>(k);
    if (!wanted[next]) continue;
    if (!hosted_[next].device && has_room(options_.device, hosted_[next].bytes)) bring_back(k);
    return;
  }
}

// By storage: somebody who lives has not read it in this graph task.
std::vector<bool> Frame::hosted_wanted(int task) const {
  std::vector<bool> wanted(hosted_.size(), false);
  for (const Slot& slot : slots_) {
    if (slot.hosted < 0 || slot.dead || slot.done_task == task) continue;
    wanted[static_cast<std::size_t>(slot.hosted)] = true;
  }
  return wanted;
}

// On the device; the graph holds what it was given for as long as it works on it.
void Frame::let_go_of_read(int task) {
  const std::vector<bool> wanted = hosted_wanted(task);
  for (std::size_t k = 0; k < hosted_.size(); ++k) {
    if (!wanted[k]) hosted_[k].device = c10::Storage();
  }
}

// In the tier, once no hook can ask for it again.
void Frame::let_go_of_dead() {
  std::vector<bool> alive(hosted_.size(), false);
  for (const Slot& slot : slots_) {
    if (slot.hosted >= 0 && !slot.dead) alive[static_cast<std::size_t>(slot.hosted)] = true;
  }
  for (std::size_t k = 0; k < hosted_.size(); ++k) {
    if (alive[k]) continue;
    if (hosted_[k].device) end_copies();
    hosted_[k] = Hosted();
  }
}

// Nothing else may get memory while a copy is on its way there. From destructors and from inside
// allocations: where it fails the device has failed, which what comes next will say.
void Frame::end_copies() noexcept {
  try {
    options_.host->arrive();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

// What a backward has read is not on the device any more: what is there came ahead.
bool Frame::has_fetched_ahead() const {
  return std::ranges::any_of(hosted_, [](const Hosted& one) { return bool(one.device); });
}

void Frame::drop_fetched_ahead() {
  end_copies();
  for (Hosted& one : hosted_) one.device = c10::Storage();
}

}  // namespace pudica::hooks
