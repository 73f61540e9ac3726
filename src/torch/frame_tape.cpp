// The frame's second strategy: single slots dropped and recovered by an operator tape.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "torch/flag_guard.h"
#include "torch/frame.h"
#include "torch/frame_versions.h"
#include "torch/meter.h"
#include "torch/rebound.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

// A search recovers everything while the forward's own bytes are there: as much again.
bool has_room_to_search(const std::vector<c10::Storage>& bytes_of, c10::Device device) {
  const Meter* meter = meter_for(device);
  if (meter == nullptr || meter->cap_bytes() <= 0) return true;
  std::int64_t needed = 0;
  for (const c10::Storage& storage : bytes_of) {
    if (storage) needed += static_cast<std::int64_t>(storage.nbytes());
  }
  return meter->in_use_bytes() + needed <= meter->cap_bytes();
}

}  // namespace

void Frame::begin_tape(const std::vector<at::Tensor>& inputs) {
  take_back();
  tape_.reset();
  // Joint segments are recovered by running them again.
  if (options_.tapes == nullptr || parts_.size() > 1 || !tape_available()) return;
  tape_ = std::make_unique<Tape>(options_.device, options_.tapes->wants_collection(),
                                 options_.timer.host());
  tape_->arguments(inputs);
  follow_menu();
}

bool Frame::is_compared() const {
  return options_.on_trial || (tape_ && options_.tapes->wants_collection());
}

StorageSet Frame::storages_of(const std::vector<std::uint32_t>& slots,
                              const StorageSet& allowed) const {
  StorageSet out(allowed.size(), false);
  for (const std::uint32_t slot : slots) {
    if (slot >= slots_.size() || slots_[slot].storage == Tape::kNone) continue;
    const auto storage = static_cast<std::size_t>(slots_[slot].storage);
    out[storage] = allowed[storage];
  }
  return out;
}

void Frame::pack_bits(const std::vector<std::uint32_t>& slots, std::vector<c10::Storage>& bytes_of,
                      StorageSet& packed) {
  for (const std::uint32_t slot : slots) {
    if (slot >= slots_.size() || slots_[slot].storage == Tape::kNone) continue;
    const auto storage = static_cast<std::size_t>(slots_[slot].storage);
    Tape::Stored& stored = tape_->stored()[storage];
    packed[storage] = stored.bits.has_value();
    if (stored.bits || stored.external || stored.escapes || stored.saved_early) continue;
    if (!bytes_of[storage]) continue;
    stored.bits = encode_bits(bytes_of[storage], stored.item_bytes, stored.contents());
    packed[storage] = stored.bits.has_value();
  }
}

std::vector<c10::Storage> Frame::bytes_of_slots() const {
  std::vector<c10::Storage> bytes_of(tape_->stored().size());
  for (const Slot& slot : slots_) {
    if (slot.storage == Tape::kNone || !slot.tensor.defined() || is_let_go(slot)) continue;
    bytes_of[static_cast<std::size_t>(slot.storage)] = slot.tensor.storage();
  }
  return bytes_of;
}

void Frame::settle_tape() {
  if (options_.tapes->wants_collection()) {
    search([this](const Collection& call) { options_.tapes->collected(call); });
    tape_.reset();
    return;
  }
  if (!fits_menu() || !drop_by_menu()) {
    take_back();
    tape_.reset();
  }
}

void Frame::search(const std::function<void(const Collection&)>& look) {
  const std::vector<c10::Storage> bytes_of = bytes_of_slots();
  if (!has_room_to_search(bytes_of, options_.device)) return;
  std::vector<std::int32_t> slot_storage;
  std::vector<std::uint64_t> histories;
  for (const Slot& slot : slots_) {
    slot_storage.push_back(slot.storage);
    histories.push_back(slot.history);
  }
  searched_ = true;
  const FlagGuard searching(this_thread_is_searching());
  look({*tape_, slot_storage, bytes_of, histories});
}

bool Frame::fits_menu() {
  if (!menu_) menu_ = options_.tapes->menu();
  if (!menu_) return false;
  const std::uint64_t signature = tape_->signature();
  if (!tape_->incomplete() && signature != menu_->signature) {
    dropped_late_ = true;
    if (auto reading = options_.tapes->menu_of(signature)) {
      menu_ = std::move(reading);
    } else if (options_.tapes->may_be_read(signature)) {
      read_menu_here();
    }
  }
  is_strange_ = tape_->incomplete() || signature != menu_->signature;
  return !is_strange_;
}

// The call has run as if it were kept: what is measured of it is not the mode's.
void Frame::read_menu_here() {
  take_back();
  search([this](const Collection& call) {
    if (auto reading = options_.tapes->read(call)) menu_ = std::move(reading);
  });
}

bool Frame::drop_by_menu() {
  const StorageSet recoverable = tape_->recoverable();
  static const MenuStep nothing;
  const MenuStep* const planned = menu_step();
  const MenuStep& step = planned != nullptr ? *planned : nothing;
  const StorageSet dropped = storages_of(step.dropped, recoverable);
  const bool revocable = options_.registry != nullptr;
  StorageSet candidates = revocable ? storages_of(menu_->order, recoverable) : dropped;
  StorageSet pinned(candidates.size(), false);
  for (std::size_t k = 0; k < candidates.size(); ++k) {
    candidates[k] = candidates[k] || dropped[k];
    pinned[k] = candidates[k] && !dropped[k];
  }
  for (const Slot& slot : slots_) {
    if (!is_let_go(slot)) continue;
    const auto storage = static_cast<std::size_t>(slot.storage);
    if (!dropped[storage] && !tape_->stored()[storage].bits) return false;
  }
  const Closure closure = tape_->closure(candidates);
  if (!closure.feasible) return false;
  std::vector<c10::Storage> bytes_of = bytes_of_slots();
  StorageSet packed(candidates.size(), false);
  const WorkInstant begin = options_.timer.now();
  // A rule of eviction has no other way with what no operator gives back.
  pack_bits(options_.eviction ? menu_->steps.front().packed : step.packed, bytes_of, packed);
  recovery_.add(begin, options_.timer.now());
  // Packed early by a slot that is gone since: others have only the bits.
  for (std::size_t k = 0; k < packed.size(); ++k) {
    packed[k] = packed[k] || tape_->stored()[k].bits.has_value();
  }
  tape_->keep(closure, candidates, pinned, bytes_of);
  bytes_of.clear();
  hand_to_tape(candidates, packed);
  state_ = State::kTaped;
  begin_eviction();
  return true;
}

void Frame::hand_to_tape(const StorageSet& candidates, const StorageSet& packed) {
  for (Slot& slot : slots_) {
    if (slot.storage == Tape::kNone || !slot.tensor.defined()) continue;
    const auto storage = static_cast<std::size_t>(slot.storage);
    if (!candidates[storage] && !packed[storage]) continue;
    if (!slot.tensor.is_inference()) {
      slot.version_handle = torch::autograd::impl::version_counter(slot.tensor);
    }
    slot.tensor = rebound(slot.tensor, no_bytes());
    slot.taped = true;
  }
}

at::Tensor Frame::unpack_taped(std::size_t index) {
  Slot& slot = slots_[index];
  const int task = torch::autograd::get_current_graph_task_id();
  if (slot.version_handle.enabled()) {
    require_unmodified(slot.version_handle.current_version(), slot.version);
  }
  if (tape_->has_forwards_own(slot.storage)) {
    slot.done_task = task;
    follow_evictions(slot.storage);
    return rebound(slot.tensor, tape_->stored()[static_cast<std::size_t>(slot.storage)].live);
  }
  const FlagGuard recovering(recovering_);
  const bool another = std::any_of(slots_.begin(), slots_.end(), [task](const Slot& other) {
    return other.taped && other.done_task != kNoTask && other.done_task != task;
  });
  if (another) {
    tape_->forget_recovered();
    for (Slot& other : slots_) other.done_task = other.done_task == task ? task : kNoTask;
  }
  const GlobalFlagsGuard flags(parts_.front().ambient.flags());
  const WorkInstant begin = options_.timer.now();
  at::Tensor tensor = rebound(slot.tensor, tape_->recover(slot.storage, wanted_slots(task)));
  recovery_.add(begin, options_.timer.now());
  recovered_ = true;
  slot.done_task = task;
  if (!tape_->stored()[static_cast<std::size_t>(slot.storage)].pinned) {
    tape_->collect(wanted_slots(task), /*pinned_too=*/false);
  }
  follow_evictions(slot.storage);
  return tensor;
}

// What the backward of the task may still read.
StorageSet Frame::wanted_slots(int task) const {
  StorageSet wanted(tape_->stored().size(), false);
  for (const Slot& slot : slots_) {
    if (!slot.taped || slot.dead) continue;
    const auto storage = static_cast<std::size_t>(slot.storage);
    if (slot.done_task == task && !tape_->stored()[storage].pinned) continue;
    wanted[storage] = true;
  }
  return wanted;
}

// What was recovered goes as soon as its last reader has it. What the forward left goes when the
// last slot that it answers for is released: until then a backward may ask for that once more.
void Frame::collect_released() {
  StorageSet held(tape_->stored().size(), false);
  for (const Slot& slot : slots_) {
    if (slot.taped && !slot.dead) held[static_cast<std::size_t>(slot.storage)] = true;
  }
  tape_->collect(held, /*pinned_too=*/true);
  tape_->collect(wanted_slots(torch::autograd::get_current_graph_task_id()), /*pinned_too=*/false);
  consumed_ = true;  // what is still there may have lost what it could be recovered from
  follow_evictions(Tape::kNone);
}

double Frame::next_price_us() const {
  if (!menu_ || recovering_ || consumed_) return -1;
  for (std::size_t i = next_given_up_; i < menu_->order.size(); ++i) {
    const std::uint32_t slot = menu_->order[i];
    if (slot >= slots_.size() || !slots_[slot].taped) continue;
    if (tape_->droppable_bytes(slots_[slot].storage) > 0) return menu_->order_price_us[i];
  }
  return -1;
}

std::int64_t Frame::give_up_next() {
  for (; next_given_up_ < menu_->order.size(); ++next_given_up_) {
    const std::uint32_t slot = menu_->order[next_given_up_];
    if (slot >= slots_.size() || !slots_[slot].taped) continue;
    if (tape_->droppable_bytes(slots_[slot].storage) <= 0) continue;
    const std::int64_t bytes = tape_->drop(slots_[slot].storage);
    ++next_given_up_;
    return bytes;
  }
  return 0;
}

double Frame::rest_price_us() {
  // An earlier backward, of a graph that is retained, may well have read it.
  const int task = torch::autograd::get_current_graph_task_id();
  const bool touched = consumed_ || (task >= 0 && touched_task_ == task);
  if (recovering_ || touched || !inputs_unchanged()) return -1;
  std::int64_t bytes = freeable_bytes(/*drop=*/false);
  // A tensor that stays may be what others are recovered from: a slot and the tape hold it.
  std::vector<std::size_t> owners(tape_->stored().size(), 1);
  for (const Slot& slot : slots_) {
    if (slot.taped || slot.storage == Tape::kNone || !slot.tensor.defined()) continue;
    if (slot.tensor.use_count() == 1) ++owners[static_cast<std::size_t>(slot.storage)];
  }
  for (std::size_t k = 0; k < owners.size(); ++k) {
    const Tape::Stored& stored = tape_->stored()[k];
    if (stored.bits) bytes += static_cast<std::int64_t>(stored.bits->packed.nbytes());
    const bool ours = !stored.external && stored.live && stored.live.use_count() == owners[k];
    if (ours) bytes += stored.bytes;
  }
  return bytes > 0 ? options_.expected_recompute_us / static_cast<double>(bytes) : -1;
}

void Frame::give_up_rest() {
  state_ = State::kDropped;
  eviction_.reset();
  freeable_bytes(/*drop=*/true);
  for (Slot& slot : slots_) {
    if (!slot.taped) continue;
    slot.tensor = at::Tensor();
    slot.taped = false;
    slot.storage = Tape::kNone;
  }
  tape_.reset();
}

}  // namespace pudica::hooks
