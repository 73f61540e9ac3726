// The frame's first strategy: its functions run again and fill the slots.
#include <exception>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "pudica/torch.h"
#include "torch/frame.h"
#include "torch/frame_versions.h"
#include "torch/tape_dispatch.h"
#include "torch/tensor_bytes.h"

namespace pudica::hooks {
namespace {

using torch::autograd::SavedVariableHooks;

// Thrown inside a recompute when the last slot is filled; derives from std::exception because it
// may cross foreign frames.
struct StopRecompute final : std::exception {
  [[nodiscard]] const char* what() const noexcept override { return "pudica: recompute complete"; }
};

}  // namespace

class Frame::RecomputeMode final : public SaveMode {
 public:
  explicit RecomputeMode(Frame& frame) : frame_(frame) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override;

  Frame& frame_;
  std::size_t next_ = 0;
};

// Hooks of one tensor saved again in a recompute: fill the slot of the same number.
class Frame::RecomputeHooks final : public SavedVariableHooks {
 public:
  explicit RecomputeHooks(RecomputeMode& mode) : mode_(mode) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    held_ = tensor.tensor_data();  // a backward inside the function may still need it
    // The function caught the stop and goes on: what it saves now is nobody's.
    if (mode_.next_ == mode_.frame_.slots_.size()) return;
    const std::size_t index = mode_.next_++;
    mode_.frame_.refill(index, tensor);
    if (mode_.next_ == mode_.frame_.slots_.size()) throw StopRecompute{};
  }
  at::Tensor call_unpack_hook() override { return held_; }

 private:
  RecomputeMode& mode_;
  at::Tensor held_;
};

std::unique_ptr<SavedVariableHooks> Frame::RecomputeMode::make_hooks() {
  return std::make_unique<RecomputeHooks>(*this);
}

void Frame::fail_deviating(const std::string& what) const {
  if (options_.observer) {
    options_.observer->recompute_deviated(options_.layer, options_.layer_class, what);
  }
  TORCH_CHECK(false, "pudica: layer ", options_.layer,
              " does not reproduce itself when it is recomputed: ", what);
}

std::string Frame::mismatch(std::size_t index, const at::Tensor& tensor) const {
  if (index >= slots_.size()) {
    return "it saves more than the " + std::to_string(slots_.size()) + " tensors of the forward";
  }
  const Slot& slot = slots_[index];
  if (slot.bytes != bytes_of(tensor)) {
    return "saved tensor " + std::to_string(index) + " has " + std::to_string(bytes_of(tensor)) +
           " bytes, " + std::to_string(slot.bytes) + " in the forward";
  }
  if (slot.dtype != tensor.scalar_type()) {
    return "saved tensor " + std::to_string(index) + " is " + c10::toString(tensor.scalar_type()) +
           ", " + c10::toString(slot.dtype) + " in the forward";
  }
  return {};
}

void Frame::refill(std::size_t index, const at::Tensor& tensor) {
  const std::string what = mismatch(index, tensor);
  if (!what.empty()) {
    fail_deviating(what);
  }
  Slot& slot = slots_[index];
  require_unmodified(version_of(tensor), slot.version);
  if (!slot.dead) slot.tensor = tensor.tensor_data();
}

// Layers that are run again as one begin from the first one's inputs alone: nothing else is held.
void Frame::begin_results(const std::vector<at::Tensor>& inputs) {
  results_.reset();
  const bool held = options_.keep_operators && !options_.store && parts_.size() == 1;
  if (!held || !tape_available()) return;
  results_ = std::make_unique<KeptResults>(options_.keep_operators, options_.device);
  results_->begin_forward(inputs);
}

std::vector<at::Tensor> Frame::rerun_parts(SaveMode& mode, TrialWatch* watch) {
  std::vector<at::Tensor> outputs;
  for (Part& part : parts_) {
    std::vector<at::Tensor> inputs;
    inputs.reserve(part.inputs.size());
    for (Input& input : part.inputs) {
      if (input.previous_output >= 0) {
        inputs.push_back(outputs[static_cast<std::size_t>(input.previous_output)]);
        continue;
      }
      const at::Tensor tensor = input.saved.unpack();
      inputs.push_back(tensor.defined() ? tensor.detach().requires_grad_(tensor.requires_grad())
                                        : tensor);
    }
    const LayerBuffers::Rerun buffers(part.buffers);
    const AmbientGuard ambient(part.ambient, options_.device);
    const SaveModeGuard guard(&mode);
    std::optional<TapeGuard> answering;
    if (answers_rerun()) {
      const bool once = !torch::autograd::get_current_graph_task_keep_graph();
      results_->begin_rerun(inputs, once);
      answering.emplace(results_.get());
    } else if (watch != nullptr) {
      for (const at::Tensor& input : inputs) watch->protect(input);
      answering.emplace(watch);
    }
    outputs = part.function(inputs);
  }
  return outputs;
}

void Frame::recompute() {
  TORCH_CHECK(state_ != State::kRecomputing, "pudica: layer ", options_.layer,
              " needs its own saved tensors while it is recomputed");
  struct StateGuard {
    Frame& frame;
    bool done = false;
    ~StateGuard() {
      frame.state_ = done ? State::kFilled : State::kDropped;
      if (!done) frame.drop_all_slots();
      if (frame.options_.observer) {
        frame.options_.observer->after_recompute(frame.options_.layer);
      }
    }
  } guard{*this};
  if (lost_buffers_) fail_deviating("its forward changed buffers, and had not when it was tried");
  state_ = State::kRecomputing;
  if (options_.observer) options_.observer->before_recompute(options_.layer);
  install_engine();  // the handle may have been detached since the forward
  RecomputeMode mode(*this);
  layer_state_changed() = false;
  const LayerDepth depth;
  const torch::autograd::AutoGradMode grad_on(true);
  try {
    rerun_parts(mode);
  } catch (const StopRecompute&) {
  } catch (const Interruption&) {
    throw;
  } catch (const Deviation& deviation) {
    fail_deviating(deviation.what());
  } catch (...) {
    // The stop may have come through another language, which has exceptions of its own.
    if (mode.next_ != slots_.size()) throw;
  }
  if (mode.next_ != slots_.size()) {
    const std::string what = "it saves " + std::to_string(mode.next_) + " tensors, " +
                             std::to_string(slots_.size()) + " in the forward";
    fail_deviating(what);
  }
  // State that the layer began to keep when its class had been tried.
  if (layer_state_changed() && parts_.front().keeps_no_state && options_.observer) {
    options_.observer->trial_due(parts_.front().layer_class, {});
  }
  // What the rerun did not come to is not asked for any more.
  if (answers_rerun() && !torch::autograd::get_current_graph_task_keep_graph()) results_.reset();
  guard.done = true;
}

}  // namespace pudica::hooks
