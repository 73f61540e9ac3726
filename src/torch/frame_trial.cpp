// The frame's trial: a kept layer is run again as soon as it ends, and what it saves compared bit
// by bit with what the forward saved and returned, which stays and is used. Bits that neither run
// wrote are nobody's.
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "pudica/torch.h"
#include "torch/frame.h"
#include "torch/frame_versions.h"
#include "torch/meter.h"
#include "torch/new_memory.h"
#include "torch/registry.h"
#include "torch/tape_dispatch.h"

namespace pudica {

void note_layer_state() { hooks::layer_state_changed() = true; }

void protect_in_trial(const std::vector<at::Tensor>& tensors) {
  hooks::TrialWatch* const watch = hooks::TrialWatch::of_this_thread();
  if (watch == nullptr) return;
  for (const at::Tensor& tensor : tensors) watch->protect(tensor);
}

}  // namespace pudica

namespace pudica::hooks {

bool& layer_state_changed() {
  static thread_local bool changed = false;
  return changed;
}

class Frame::TrialMode final : public SaveMode {
 public:
  explicit TrialMode(Frame& frame) : frame_(frame), replaceable_(frame.slots_of_its_own()) {
    if (frame.has_room_for_all_again()) replaceable_.assign(replaceable_.size(), false);
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> make_hooks() override {
    return std::make_unique<Hooks>(*this);
  }
  // What is wrong; empty: nothing.
  [[nodiscard]] std::string verdict() const {
    if (!difference_.empty() || next_ == frame_.slots_.size()) return difference_;
    return "it saves " + std::to_string(next_) + " tensors, " +
           std::to_string(frame_.slots_.size()) + " in the forward";
  }

 private:
  class Hooks final : public torch::autograd::SavedVariableHooks {
   public:
    explicit Hooks(TrialMode& mode) : mode_(mode) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      held_ = mode_.compare(mode_.next_++, tensor);  // a backward inside the function may need it
    }
    at::Tensor call_unpack_hook() override { return held_; }

   private:
    TrialMode& mode_;
    at::Tensor held_;
  };

  // What to hold of it. Of two with the same bits one is enough: the forward's. Where there is no
  // room for all that the layer saves a second time, what the forward's slot alone holds gives way
  // at once to what was just made, which others may still need.
  at::Tensor compare(std::size_t index, const at::Tensor& tensor) {
    at::Tensor again = tensor.tensor_data();
    if (!difference_.empty()) return again;
    difference_ = frame_.mismatch(index, tensor);
    if (!difference_.empty() || !frame_.slots_[index].tensor.defined()) return again;
    Slot& slot = frame_.slots_[index];
    if (!same_bits(slot.tensor, tensor)) {
      if (!same_where_written(slot.tensor, tensor)) {
        difference_ = "saved tensor " + std::to_string(index) + " has other values";
      }
      return again;
    }
    if (!lie_alike(slot.tensor, tensor)) return again;
    if (!replaceable_[index]) return slot.tensor.tensor_data();
    slot.tensor = again;
    slot.version = version_of(tensor);
    return again;
  }

  static bool lie_alike(const at::Tensor& left, const at::Tensor& right) {
    if (left.layout() != at::kStrided || right.layout() != at::kStrided) return false;
    if (!left.has_storage() || !right.has_storage()) return false;
    return left.sizes() == right.sizes() && left.strides() == right.strides() &&
           left.storage_offset() == right.storage_offset() &&
           left.storage().nbytes() == right.storage().nbytes() &&
           left.is_conj() == right.is_conj() && left.is_neg() == right.is_neg();
  }

  Frame& frame_;
  std::vector<bool> replaceable_;  // by slot
  std::size_t next_ = 0;
  std::string difference_;
};

// What a joint segment hands to its next layer is an output, saved or not.
std::string Frame::difference_of_outputs(const std::vector<at::Tensor>& outputs) const {
  if (outputs.size() != previous_outputs_.size()) {
    return "it returns " + std::to_string(outputs.size()) + " tensors, " +
           std::to_string(previous_outputs_.size()) + " in the forward";
  }
  const at::NoGradGuard no_grad;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const auto then = previous_outputs_[k].lock();
    if (!then || !outputs[k].defined() || outputs[k].layout() != at::kStrided) continue;
    const at::Tensor before(then);
    if (!before.defined() || before.layout() != at::kStrided) continue;
    const bool same_type = before.scalar_type() == outputs[k].scalar_type();
    if (!same_type || !same_where_written(before.detach(), outputs[k].detach())) {
      return "output " + std::to_string(k) + " has other values";
    }
  }
  return {};
}

bool Frame::has_room_for_all_again() {
  const Meter* const meter = meter_for(options_.device);
  if (meter == nullptr || meter->cap_bytes() <= 0) return true;
  // As much for what is saved, and as much for what is not.
  return meter->in_use_bytes() + 2 * freeable_bytes(/*drop=*/false) <= meter->cap_bytes();
}

void Frame::try_rerun() {
  // Whoever has not reproduced itself is not given up.
  const std::shared_ptr<Registry> registry = std::exchange(options_.registry, nullptr);
  TrialMode mode(*this);
  std::string what;
  const BufferPlaces changed = parts_.front().buffers.changed();
  layer_state_changed() = false;
  if (!inputs_unchanged()) {
    what = "it changes its arguments in place";
  } else {
    try {
      const LayerDepth depth;
      const PatternGuard pattern(MemoryPattern::kAgain);
      const torch::autograd::AutoGradMode grad_on(true);
      TrialWatch watch;
      const std::vector<at::Tensor> outputs =
          rerun_parts(mode, tape_available() ? &watch : nullptr);
      what = watch.stopped_at();
      if (what.empty()) what = mode.verdict();
      if (what.empty()) what = difference_of_outputs(outputs);
    } catch (const c10::OutOfMemoryError&) {
      return;  // no verdict: another call will be tried
    } catch (const Interruption&) {
      throw;
    } catch (const std::exception& error) {
      what = error.what();
      what = "it fails: " + what.substr(0, what.find('\n'));
    }
  }
  if (what.empty() && registry) {
    options_.registry = registry;
    registry->add(*this);
  }
  if (!options_.observer) return;
  if (what.empty()) {
    const bool keeps_state = layer_state_changed() || parts_.front().buffers.are_lost();
    options_.observer->trial_passed(options_.layer_class, changed, keeps_state);
  } else {
    options_.observer->recompute_deviated(options_.layer, options_.layer_class, what);
  }
}

}  // namespace pudica::hooks
