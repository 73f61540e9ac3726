// The frame's trial: a kept layer is run again as soon as it ends, and what it saves compared bit
// by bit with what the forward saved and returned, which stays and is used. Bits that neither run
// wrote are nobody's.
#include <exception>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "pudica/torch.h"
#include "torch/frame.h"
#include "torch/new_memory.h"
#include "torch/registry.h"

namespace pudica {

void note_layer_state() { hooks::layer_state_changed() = true; }

}  // namespace pudica

namespace pudica::hooks {

bool& layer_state_changed() {
  static thread_local bool changed = false;
  return changed;
}

class Frame::TrialMode final : public SaveMode {
 public:
  explicit TrialMode(Frame& frame) : frame_(frame) {}

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
      held_ = tensor.tensor_data();  // a backward inside the function may still need it
      mode_.compare(mode_.next_++, tensor);
    }
    at::Tensor call_unpack_hook() override { return held_; }

   private:
    TrialMode& mode_;
    at::Tensor held_;
  };

  void compare(std::size_t index, const at::Tensor& tensor) {
    if (!difference_.empty()) return;
    difference_ = frame_.mismatch(index, tensor);
    if (!difference_.empty()) return;
    const at::Tensor& kept = frame_.slots_[index].tensor;
    if (kept.defined() && !same_where_written(kept, tensor)) {
      difference_ = "saved tensor " + std::to_string(index) + " has other values";
    }
  }

  Frame& frame_;
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
      const std::vector<at::Tensor> outputs = rerun_parts(mode);
      what = mode.verdict();
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
