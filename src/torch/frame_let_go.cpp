// What a selective mode drops, let go while the layer still runs: the forward then needs less at
// its peak than one that keeps everything until the layer ends.
#include <algorithm>
#include <exception>

#include <c10/core/StreamGuard.h>

#include "base/log.h"
#include "torch/frame.h"
#include "torch/rebound.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

bool is_one_of(const std::vector<std::uint32_t>& slots, std::size_t index) {
  return std::ranges::find(slots, index) != slots.end();
}

// The frame's own alias of a saved tensor; its version counter stays the saved one's.
void put_on(const at::Tensor& alias, const c10::Storage& storage) {
  at::TensorImpl* const impl = alias.unsafeGetTensorImpl();
  impl->set_allow_tensor_metadata_change(true);
  impl->set_storage_keep_dtype(storage);
}

}  // namespace

const MenuStep* Frame::menu_step() const {
  const auto step = static_cast<std::size_t>(options_.menu_step);
  const bool has_step = menu_ && options_.menu_step >= 0 && step < menu_->steps.size();
  return has_step ? &menu_->steps[step] : nullptr;
}

void Frame::follow_menu() {
  menu_ = options_.menu ? options_.menu : options_.tapes->menu();
  // A trial compares with what the forward saved.
  if (menu_step() == nullptr || options_.on_trial) return;
  tape_->follow({&menu_->sequence, &menu_->keep_operators, [this] { take_back(); }});
}

bool Frame::is_let_go(const Slot& slot) const {
  return tape_ && slot.storage != Tape::kNone &&
         tape_->stored()[static_cast<std::size_t>(slot.storage)].let_go;
}

void Frame::let_go_early(std::size_t index) noexcept {
  Slot& slot = slots_[index];
  if (slot.storage == Tape::kNone) return;
  const TapeGuard unseen(nullptr);
  try {
    const MenuStep& step = *menu_step();
    const bool may_go = std::ranges::any_of(menu_->early, [&](const ClassMenu::Early& one) {
      return one.slot == index && one.history == slot.history;
    });
    const bool another = is_let_go(slot);  // of what went before
    if (!another && may_go && is_one_of(step.packed, index)) {
      const WorkInstant begin = options_.timer.now();
      if (!tape_->let_go_as_bits(slot.storage)) return;
      const WorkInstant end = options_.timer.now();
      recovery_.add(begin, end);
      if (begin.host && end.host) packing_seconds_ += end.host->seconds_since(*begin.host);
    } else if (!another) {
      const bool goes = may_go && is_one_of(step.dropped, index);
      if (!goes || !tape_->let_go(slot.storage)) return;
    }
    put_on(slot.tensor, no_bytes());
  } catch (const std::exception& error) {
    log_info(std::string("a saved tensor stays until its layer ends: ") + error.what());
  }
}

void Frame::note_bits(std::size_t index) noexcept {
  const TapeGuard unseen(nullptr);
  try {
    tape_->note_bits(slots_[index].storage);
  } catch (const std::exception& error) {
    log_info(std::string("a mask is packed when its layer ends: ") + error.what());
  }
}

void Frame::take_back() {
  if (!tape_ || !tape_->has_let_go()) return;
  const std::lock_guard lock(mutex_);
  const TapeGuard unseen(nullptr);
  const c10::OptionalStreamGuard stream(tape_->stream());
  const GlobalFlagsGuard flags(parts_.front().ambient.flags());
  taken_back_ = true;
  StorageSet needed(tape_->stored().size(), false);
  for (const Slot& slot : slots_) {
    if (is_let_go(slot)) needed[static_cast<std::size_t>(slot.storage)] = true;
  }
  for (std::size_t storage = 0; storage < needed.size(); ++storage) {
    if (!needed[storage]) continue;
    const c10::Storage bytes = tape_->take_back(static_cast<std::int32_t>(storage));
    for (const Slot& slot : slots_) {
      const bool is_of_it = slot.storage == static_cast<std::int32_t>(storage);
      if (is_of_it && slot.tensor.defined()) put_on(slot.tensor, bytes);
    }
    needed[storage] = false;
    tape_->forget_remade(needed);
  }
  tape_->end_following();
}

}  // namespace pudica::hooks
