#include "torch/frame.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "pudica/torch.h"
#include "torch/frame_versions.h"
#include "torch/new_memory.h"
#include "torch/registry.h"
#include "torch/tape_dispatch.h"
#include "torch/tensor_bytes.h"

namespace pudica::hooks {
namespace {

using torch::autograd::SavedVariableHooks;

// A wrapper object of another language owns a reference; releasing it may need that language's
// lock.
bool has_wrapper(const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() != nullptr) return true;
  return tensor.has_storage() &&
         tensor.storage().unsafeGetStorageImpl()->pyobj_slot()->load_pyobj() != nullptr;
}

}  // namespace

int& this_thread_layers_open() {
  static thread_local int open = 0;
  return open;
}

// Hooks of one tensor saved in forward: an index into the frame's slots.
class Frame::ForwardHooks final : public SavedVariableHooks {
 public:
  explicit ForwardHooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  ~ForwardHooks() override {
    if (packed_) frame_->release(index_);
  }
  ForwardHooks(const ForwardHooks&) = delete;
  ForwardHooks& operator=(const ForwardHooks&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override {
    index_ = frame_->pack(tensor);
    packed_ = true;
  }
  at::Tensor call_unpack_hook() override {
    try {
      return frame_->unpack(index_);
    } catch (const Interruption& interruption) {
      std::rethrow_exception(interruption.cause());
    }
  }
  [[nodiscard]] std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>>
  retrieve_unpack_hook_data() const override {
    return std::nullopt;  // compiled autograd then unpacks at capture
  }

 private:
  std::shared_ptr<Frame> frame_;
  std::size_t index_ = 0;
  bool packed_ = false;
};

class Frame::ForwardMode final : public SaveMode {
 public:
  explicit ForwardMode(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<ForwardHooks>(frame_);
  }

 private:
  std::shared_ptr<Frame> frame_;
};

// What a part under way has on this thread's stacks; goes in reverse order.
struct Frame::OpenPart {
  OpenPart(std::shared_ptr<Frame> frame, OperatorObserver* operators) : mode(frame), saving(&mode) {
    if (operators != nullptr) recording.emplace(operators);
    if (frame->is_compared()) pattern.emplace(MemoryPattern::kForward);
  }

  ForwardMode mode;
  SaveModeGuard saving;
  std::optional<TapeGuard> recording;
  std::optional<PatternGuard> pattern;
};

Frame::Frame(FrameOptions options) : options_(std::move(options)) {}

std::shared_ptr<Frame> Frame::make(FrameOptions options) {
  std::shared_ptr<Frame> frame(new Frame(std::move(options)));
  if (frame->options_.registry && !frame->options_.on_trial) frame->options_.registry->add(*frame);
  return frame;
}

Frame::~Frame() {
  if (listed_) options_.registry->remove(*this);
  while (!early_copies_.empty()) drop_early(early_copies_.back().slot);
  if (has_fetched_ahead()) drop_fetched_ahead();
  const bool told = hosted_.empty() ? tape_ && recovered_ : true;
  if (told && options_.observer) options_.observer->recovered(options_.layer, recovery_);
}

std::vector<Frame::Input> Frame::hold_inputs(const std::vector<at::Tensor>& inputs) const {
  std::vector<Input> held;
  held.reserve(inputs.size());
  for (const at::Tensor& tensor : inputs) {
    Input input;
    for (std::size_t k = 0; tensor.defined() && k < previous_outputs_.size(); ++k) {
      const auto alive = previous_outputs_[k].lock();
      if (alive && alive.get() == tensor.unsafeGetTensorImpl()) {
        input.previous_output = static_cast<std::int64_t>(k);
      }
    }
    if (input.previous_output < 0) {
      // Built under the outer mode: an enclosing frame packs it, so that nesting composes.
      input.saved = torch::autograd::SavedVariable(tensor, /*is_output=*/false);
      if (tensor.defined()) {
        input.version_handle = torch::autograd::impl::version_counter(tensor);
        input.version = version_of(tensor);
      }
    }
    held.push_back(std::move(input));
  }
  return held;
}

void Frame::remember_outputs(const std::vector<at::Tensor>& outputs) {
  previous_outputs_.clear();
  for (const at::Tensor& output : outputs) {
    previous_outputs_.emplace_back(output.getIntrusivePtr());
  }
}

void Frame::begin_part(FrameFunction function, const std::vector<at::Tensor>& inputs,
                       const std::vector<at::Tensor>& buffers, std::uint16_t layer_class,
                       const BufferHabit& habit) {
  Part part;
  part.function = std::move(function);
  part.inputs = hold_inputs(inputs);
  part.buffers = LayerBuffers(buffers, habit.changing);
  part.layer_class = layer_class;
  part.keeps_no_state = habit.keeps_no_state;
  part.ambient = Ambient::capture(options_.device);
  {
    const std::lock_guard lock(mutex_);
    parts_.push_back(std::move(part));
  }
  begin_tape(inputs);
  begin_offload();
  begin_results(inputs);
  OperatorObserver* operators = tape_.get();
  if (operators == nullptr) operators = writes_.get();
  if (operators == nullptr) operators = results_.get();
  open_part_ = std::make_unique<OpenPart>(shared_from_this(), operators);
}

void Frame::check_buffers() {
  Part& part = parts_.back();
  part.buffers.end_forward();
  if (!part.keeps_no_state || !part.buffers.are_lost()) return;
  lost_buffers_ = true;
  if (options_.observer) options_.observer->trial_due(part.layer_class, part.buffers.changed());
}

void Frame::end_part(const std::vector<at::Tensor>& outputs) {
  open_part_.reset();
  check_buffers();
  parts_.back().ambient.forget_unused_random_state();
  if (tape_) {
    for (const at::Tensor& output : outputs) tape_->escape(output);
  }
  if (results_) results_->end_forward();
  remember_outputs(outputs);
}

void Frame::abort_part() noexcept {
  open_part_.reset();
  const std::lock_guard lock(mutex_);
  options_.on_trial = false;
  try {
    take_back();
  } catch (const std::exception&) {
    // They are lost: who asks for one runs the functions again.
    for (Slot& slot : slots_) {
      if (is_let_go(slot)) slot.tensor = at::Tensor();
    }
  }
  tape_.reset();
  results_.reset();
  early_slots_.clear();
  while (!early_copies_.empty()) drop_early(early_copies_.back().slot);
}

std::vector<at::Tensor> Frame::run_part(const FrameFunction& function,
                                        const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& buffers) {
  begin_part(function, inputs, buffers);
  std::vector<at::Tensor> outputs;
  try {
    outputs = function(inputs);
  } catch (...) {
    abort_part();
    throw;
  }
  end_part(outputs);
  return outputs;
}

void Frame::finish() {
  const std::lock_guard lock(mutex_);
  const bool runs = state_ == State::kRunning;
  if (runs) state_ = options_.store ? State::kKept : State::kDropped;
  if (runs && options_.on_trial && state_ == State::kKept) try_rerun();
  previous_outputs_.clear();
  if (!runs) return;
  if (tape_) settle_tape();
  if (options_.host && state_ == State::kKept) settle_offload();
}

std::size_t Frame::pack(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  Slot slot;
  slot.bytes = bytes_of(tensor);
  slot.version = version_of(tensor);
  slot.dtype = tensor.scalar_type();
  // tensor_data() shares storage and version counter, has no grad_fn and dispatches nothing.
  if (options_.store && state_ == State::kRunning) slot.tensor = tensor.tensor_data();
  if (tape_ && state_ == State::kRunning) slot.storage = tape_->slot(tensor);
  if (tape_) slot.history = tape_->history();
  slots_.push_back(std::move(slot));
  const std::size_t index = slots_.size() - 1;
  if (!early_slots_.empty() && state_ == State::kRunning) copy_early(index);
  if (tape_ && state_ == State::kRunning) {
    if (tape_->follows()) let_go_early(index);
    if (tape_->collects()) note_bits(index);
  }
  return index;
}

at::Tensor Frame::unpack(std::size_t index) {
  const std::lock_guard lock(mutex_);
  touched_task_ = torch::autograd::get_current_graph_task_id();
  if (state_ == State::kRunning) take_back();  // a backward inside the layer
  if (slots_[index].taped) return unpack_taped(index);
  if (slots_[index].hosted >= 0) return unpack_hosted(index);
  if (!slots_[index].tensor.defined()) recompute();
  Slot& slot = slots_[index];
  // Hooks switch autograd's own version check off.
  require_unmodified(version_of(slot.tensor), slot.version);
  at::Tensor tensor = slot.tensor;
  if (state_ == State::kFilled && torch::autograd::get_current_graph_task_keep_graph()) {
    slot.tensor = at::Tensor();  // a retained graph does not keep what was recomputed
  }
  return tensor;
}

void Frame::release(std::size_t index) {
  at::Tensor freed_after_unlock;
  const std::lock_guard lock(mutex_);
  if (state_ == State::kRunning) drop_early(index);
  std::swap(freed_after_unlock, slots_[index].tensor);
  slots_[index].dead = true;
  if (tape_ && state_ == State::kRunning && slots_[index].storage != Tape::kNone) {
    tape_->unslot(slots_[index].storage);
    slots_[index].storage = Tape::kNone;
  }
  if (state_ == State::kTaped && !recovering_) collect_released();
  if (state_ == State::kOffloaded) let_go_of_dead();
}

bool Frame::inputs_unchanged() const {
  for (const Part& part : parts_) {
    for (const Input& input : part.inputs) {
      if (input.version_handle.enabled() &&
          input.version_handle.current_version() != input.version) {
        return false;
      }
    }
  }
  return true;
}

void Frame::drop_all_slots() {
  for (Slot& slot : slots_) slot.tensor = at::Tensor();
}

std::vector<Frame::OwnedStorage> Frame::owned_storages() {
  struct Reference {
    const c10::StorageImpl* storage;
    std::size_t owners;
    Slot* slot;
  };
  std::vector<Reference> references;
  for (Slot& slot : slots_) {
    const at::Tensor& tensor = slot.tensor;
    if (!tensor.defined() || !tensor.has_storage() || tensor.use_count() != 1) continue;
    const c10::Storage& storage = tensor.storage();  // by reference: a copy would change the count
    references.push_back({storage.unsafeGetStorageImpl(), storage.use_count(), &slot});
  }
  std::sort(references.begin(), references.end(),
            [](const Reference& left, const Reference& right) {
              if (left.storage != right.storage) return left.storage < right.storage;
              return left.slot < right.slot;
            });
  std::vector<OwnedStorage> owned;
  for (std::size_t begin = 0; begin < references.size();) {
    std::size_t end = begin;
    OwnedStorage one;
    for (; end < references.size() && references[end].storage == references[begin].storage; ++end) {
      one.slots.push_back(references[end].slot);
    }
    if (references[begin].owners == end - begin) owned.push_back(std::move(one));
    begin = end;
  }
  std::sort(owned.begin(), owned.end(), [](const OwnedStorage& left, const OwnedStorage& right) {
    return left.slots.front() < right.slots.front();
  });
  return owned;
}

std::vector<bool> Frame::slots_of_its_own() {
  std::vector<bool> own(slots_.size(), false);
  for (const OwnedStorage& one : owned_storages()) {
    for (const Slot* const slot : one.slots) {
      own[static_cast<std::size_t>(slot - slots_.data())] = !has_wrapper(slot->tensor);
    }
  }
  return own;
}

std::int64_t Frame::freeable_bytes(bool drop) {
  std::int64_t bytes = 0;
  for (const OwnedStorage& one : owned_storages()) {
    bytes += static_cast<std::int64_t>(one.slots.front()->tensor.storage().nbytes());
  }
  if (drop) {
    // Shared ones go too: their other owner (the cache of weight casts) may die later and leave
    // them to us alone.
    for (Slot& slot : slots_) {
      if (slot.tensor.defined() && !has_wrapper(slot.tensor)) slot.tensor = at::Tensor();
    }
  }
  return bytes;
}

}  // namespace pudica::hooks
