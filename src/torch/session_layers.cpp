// The session's layers: which mode each call runs in, its frame, and what is measured around it.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/graph_task.h>

#include "base/layer_order.h"
#include "torch/gradient_source.h"
#include "torch/session.h"
#include "torch/tape_dispatch.h"
#include "torch/tensor_bytes.h"

namespace pudica::hooks {
namespace {

std::int64_t bytes_of_all(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.has_storage()) bytes += bytes_of(tensor);
  }
  return bytes;
}

// Of the tensors that tell a layer's class, one after the other.
std::vector<std::int64_t> sizes_of(const std::vector<at::Tensor>& inputs, std::size_t telling) {
  std::vector<std::int64_t> sizes;
  for (std::size_t k = 0; k < std::min(inputs.size(), telling); ++k) {
    if (!inputs[k].defined()) continue;
    sizes.insert(sizes.end(), inputs[k].sizes().begin(), inputs[k].sizes().end());
  }
  return sizes;
}

// Tensors are packed by hooks of the user's own, or operators are seen by a mode of theirs: what a
// layer saves is no longer ours to hold.
bool others_see_what_is_saved() {
  return !at::SavedTensorDefaultHooks::get_tls_state().stack.empty() ||
         c10::impl::TorchDispatchModeTLS::stack_len() > 0;
}

}  // namespace

bool Session::takes_part() const {
  return attached_ && step_open_ && !rest_.rests() && std::this_thread::get_id() == thread_ &&
         this_thread_layers_open() == 0 && at::GradMode::is_enabled() &&
         !c10::InferenceMode::is_enabled() && !others_see_what_is_saved() &&
         torch::autograd::get_current_graph_task_id() == within_backward_;
}

std::uint16_t Session::class_of(const std::string& name, const std::vector<at::Tensor>& inputs,
                                std::size_t telling_inputs) {
  // What of the inputs changes what a layer saves: which need gradients, their types and ranks.
  std::string key = name;
  for (std::size_t k = 0; k < std::min(inputs.size(), telling_inputs); ++k) {
    const at::Tensor& input = inputs[k];
    if (!input.defined()) {
      key += "/none";
      continue;
    }
    key += '/';
    key += c10::toString(input.scalar_type());
    key += static_cast<char>('0' + std::min<std::int64_t>(input.dim(), 9));
    if (input.requires_grad()) key += 'g';
    // Operators differ where a dimension is 1 (a reshape is a view then) or memory has gaps.
    for (std::int64_t i = 0; i < input.dim(); ++i) {
      if (input.size(i) == 1) key += static_cast<char>('a' + std::min<std::int64_t>(i, 9));
    }
    if (input.layout() != at::kStrided) {
      key += c10::str(input.layout());
    } else if (!input.is_contiguous()) {
      key += 'n';
    }
  }
  LayerKind& kind = kinds_[key];
  const std::size_t group = kind.sizes.group_of(step_, sizes_of(inputs, telling_inputs));
  while (kind.classes.size() <= group) {
    const std::size_t size = kind.classes.size();
    kind.classes.push_back(
        add_class(size == 0 ? name : name + " (size " + std::to_string(size + 1) + ")"));
  }
  return kind.classes[group];
}

std::uint16_t Session::add_class(std::string name) {
  const auto id = static_cast<std::uint16_t>(class_names_.size());
  class_names_.push_back(std::move(name));
  class_forward_us_.push_back(0);
  const bool tapes = options_.policy->wants_menus() && tape_available();
  class_tapes_.push_back(
      tapes ? std::make_shared<ClassTapes>(options_.menu_rules, eviction_ != nullptr) : nullptr);
  return id;
}

// Of the call that comes next.
std::size_t Session::place_of(std::uint16_t layer_class) const {
  const std::size_t from = calls_.empty() ? 0 : calls_.back().place + 1;
  return decision_.plan ? next_place(decision_.plan->layer_classes, layer_class, from) : from;
}

Mode Session::mode_of(std::size_t place, std::uint16_t layer_class) const {
  if (state_->is_quarantined(layer_class) || !decision_.plan) return Mode::keep();
  const Plan& plan = *decision_.plan;
  if (place < plan.modes.size()) {
    const bool strange =
        plan.modes[place].kind == Mode::Kind::kSelective && strange_.contains(layer_class);
    return strange ? plan.strange_mode : plan.modes[place];
  }
  if (!plan.teach_first_of_class) return plan.default_mode;
  for (const Call& call : calls_) {
    if (call.layer_class == layer_class) return plan.default_mode;
  }
  return Mode::full();
}

bool Session::is_foreseen(std::size_t place, std::uint16_t layer_class) const {
  if (!decision_.plan || decision_.plan->layer_classes.empty()) return true;
  const auto& planned = decision_.plan->layer_classes;
  return place < planned.size() && planned[place] == layer_class;
}

bool Session::is_joined(std::size_t place) const {
  return decision_.plan && place < decision_.plan->joined.size() &&
         decision_.plan->joined[place] != 0;
}

bool Session::keeps_revocably() const {
  if (!decision_.plan) return options_.budget_bytes.count() > 0;
  if (leaves_doubt_ || course_leaves_doubt_) return true;
  if (steps_until_free_ > 0 && options_.budget_bytes.count() > 0) return true;
  return decision_.plan->revocable;
}

// Of kept layers only where revocation is to be expected: a tape makes it cheaper, and costs a
// percent or two of a small layer when it never comes.
bool Session::wants_tape(const Call& call) const {
  if (call.mode.kind == Mode::Kind::kOffload) return false;
  const auto& tapes = class_tapes_[call.layer_class];
  if (!tapes || call.mode.kind == Mode::Kind::kSelective || tapes->wants_collection()) return true;
  if (!decision_.plan || context_.shares_backward()) return true;
  return decision_.plan->predicted_peak_bytes <= Bytes(0) || !decision_.plan->feasible;
}

bool Session::is_hook_free(const Call& call) const {
  if (state_->is_quarantined(call.layer_class)) return call.mode.kind != Mode::Kind::kFull;
  // Recorded steps all measure a layer in the same way: in a frame, which holds its inputs.
  if (keeps_revocably() || decision_.record || call.mode.kind == Mode::Kind::kFull ||
      call.mode.kind == Mode::Kind::kOffload) {
    return false;
  }
  if (call.mode.kind != Mode::Kind::kSelective) return true;
  // A mode that was learned in another process: its menu must be found here first.
  const auto& tapes = class_tapes_[call.layer_class];
  return !tapes || (!tapes->menu() && !tapes->wants_collection());
}

std::shared_ptr<Frame> Session::open_frame(std::size_t ordinal, const Call& call, bool on_trial) {
  if (call.joined && open_segment_) return open_segment_;
  close_segment();
  FrameOptions frame;
  frame.store = call.mode.kind != Mode::Kind::kFull;
  const bool offloads = call.mode.kind == Mode::Kind::kOffload;
  // Where the tier has no room the layer is kept instead, which the plan has not reckoned with.
  const bool revocable = keeps_revocably() || (offloads && options_.budget_bytes.count() > 0);
  frame.registry = frame.store && revocable ? registry_ : nullptr;
  if (offloads) {
    frame.host = host_tier();
    auto& habit = offload_habits_[call.layer_class];
    if (!habit) habit = std::make_shared<OffloadHabit>();
    frame.offload_habit = habit;
  }
  if (frame.store && wants_tape(call)) {
    frame.tapes = class_tapes_[call.layer_class];
    const bool strayed = strayed_.contains(call.layer_class);
    if (frame.tapes) frame.menu = frame.tapes->menu_at(context_.shape, tape_place(call), strayed);
  }
  if (call.mode.kind == Mode::Kind::kSelective) frame.menu_step = call.mode.step;
  if (!frame.store) frame.keep_operators = keep_operators_;
  if (frame.registry) frame.eviction = eviction_;
  frame.layer = state_->frame_layer(ordinal);
  frame.layer_class = call.layer_class;
  frame.expected_recompute_us = class_forward_us_[call.layer_class];
  frame.on_trial = on_trial;
  frame.device = options_.device;
  frame.timer = timer_;
  frame.observer = state_;
  return Frame::make(std::move(frame));
}

const std::shared_ptr<HostTier>& Session::host_tier() {
  if (!host_) host_ = make_host_tier(options_.device, options_.offload, host_clock_);
  return host_;
}

void Session::close_segment() {
  if (open_segment_) open_segment_->finish();
  open_segment_.reset();
}

std::vector<at::Tensor> Session::layer(std::int64_t /*index*/, const LayerFunction& function,
                                       std::vector<at::Tensor> inputs,
                                       const LayerOptions& options) {
  if (!enter_layer(function, inputs, options)) return function(inputs);
  std::vector<at::Tensor> outputs;
  try {
    outputs = function(inputs);
  } catch (...) {
    abandon_layers();
    throw;
  }
  inputs.clear();
  leave_layer(outputs);
  return outputs;
}

bool Session::needs_trial(std::uint16_t layer_class, const LayerOptions& options) const {
  return options.unproven && !state_->is_quarantined(layer_class) &&
         !state_->is_proven(layer_class);
}

bool Session::enter_layer(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                          const LayerOptions& options) noexcept {
  if (!takes_part()) return false;
  const std::size_t calls = calls_.size();
  if (contain("the start of a layer", [&] { begin_call(rerun, inputs, options); })) return true;
  call_failed_ = true;
  calls_.resize(calls);
  open_layer_.reset();
  inside_.store({});
  return false;
}

void Session::begin_call(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                         const LayerOptions& options) {
  const std::size_t ordinal = calls_.size();
  Call call;
  call.layer_class = class_of(options.layer_class, inputs, options.telling_inputs);
  if (decision_.may_change) settle_decision(call.layer_class);
  call.place = place_of(call.layer_class);
  call.mode = mode_of(call.place, call.layer_class);
  const bool unproven = needs_trial(call.layer_class, options);
  // Until a call of the class has reproduced itself none may have to.
  if (unproven && call.mode.kind != Mode::Kind::kSelective) call.mode = Mode::keep();
  call.apart = ordinal > 0 && (options.apart || is_apart(ordinal, inputs));
  const bool foreseen = is_foreseen(call.place, call.layer_class);
  called_others_ = called_others_ || !foreseen;
  course_leaves_doubt_ =
      held_predictions_.doubts({call.layer_class, bytes_of_all(inputs), grown_bytes(), foreseen});
  // A segment needs at once what its layers need together, and cannot be taken back.
  call.joined = is_joined(call.place) && call.mode.kind == Mode::Kind::kFull && !call.apart &&
                held_predictions_.may_join();
  calls_.push_back(call);
  if (call.place != ordinal) state_->placed(static_cast<std::int32_t>(ordinal), call.place);
  auto open = std::make_unique<OpenLayer>();
  open->ordinal = ordinal;
  if (decision_.record) {
    state_->mark(MarkKind::kForwardBegin, static_cast<std::int32_t>(ordinal));
    open->input_sources = sources_of(inputs);
    state_->called(static_cast<std::int32_t>(ordinal), inputs, options_.device);
    if (ordinal == 0) {
      open->inputs = inputs;
    } else {
      hook_gap(ordinal, inputs);
    }
  }
  if (decision_.plan && call.place < decision_.plan->forward_need_bytes.size()) {
    registry_->make_room(decision_.plan->forward_need_bytes[call.place]);
  }
  open->began = host_clock_.now();
  open->work_began = timer_.now();
  if (!unproven && is_hook_free(call)) {
    calls_[ordinal].hook_free = true;
    close_segment();
  } else {
    open->frame = open_frame(ordinal, call, unproven);
    open->continues = call.mode.kind == Mode::Kind::kFull && is_joined(call.place + 1);
    open->frame->begin_part(rerun, inputs, options.buffers, call.layer_class,
                            state_->buffer_habit(call.layer_class));
    calls_[ordinal].on_trial = unproven;
  }
  open_layer_ = std::move(open);
  inside_.store(std::this_thread::get_id());
}

void Session::leave_layer(const std::vector<at::Tensor>& outputs) {
  if (!open_layer_) return;
  if (contain("the end of a layer", [&] { finish_call(outputs); })) return;
  abandon_layers();
  if (interruption_) std::rethrow_exception(std::exchange(interruption_, nullptr));
}

void Session::finish_call(const std::vector<at::Tensor>& outputs) {
  const std::size_t ordinal = open_layer_->ordinal;
  Call& call = calls_[ordinal];
  call.forward.add(open_layer_->work_began, timer_.now());
  if (open_layer_->frame) finish_frame(call, outputs);
  call.forward_us = 1e6 * host_clock_.now().passed_since(open_layer_->began);
  call.no_gradient = gradient_path(outputs) == nullptr;
  contain("a gradient hook", [&] {
    shared_backward_.watch(outputs);
    if (ordinal + 1 == structure_.layers.size()) shared_backward_.watch_last(outputs);
  });
  latest_storages_.clear();
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.has_storage()) {
      latest_storages_.push_back(output.storage().getWeakStorageImpl());
    }
  }
  if (decision_.record) {
    state_->made(static_cast<std::int32_t>(ordinal), outputs, options_.device);
    hook_borders(ordinal, *open_layer_, outputs);
  }
  open_layer_.reset();
  inside_.store({});
  if (decision_.record) {
    state_->mark(MarkKind::kForwardEnd, static_cast<std::int32_t>(ordinal));
  }
}

void Session::finish_frame(Call& call, const std::vector<at::Tensor>& outputs) {
  const std::shared_ptr<Frame>& frame = open_layer_->frame;
  const std::int64_t refusals = meter_.refusals();
  frame->end_part(outputs);
  if (open_layer_->continues) {
    open_segment_ = frame;
  } else {
    frame->finish();
    open_segment_.reset();
  }
  refusals_before_ += meter_.refusals() - refusals;  // a trial's
  call.collected = frame->searched();
  call.taken_back = frame->taken_back();
  if (call.taken_back) call.forward = WorkTime();
  if (frame->packing_seconds() > 0 && !call.forward.empty()) {
    call.forward.add(-frame->packing_seconds());
  }
  if (call.mode.kind == Mode::Kind::kSelective) {
    if (frame->is_strange()) note_strangers(call.layer_class);
    if (frame->taped()) {
      call.dropped_late = frame->dropped_late();
      if (call.dropped_late) strayed_.insert(call.layer_class);
      class_tapes_[call.layer_class]->met_its_like(context_.shape, tape_place(call),
                                                   *frame->menu());
    } else {
      call.mode = Mode::keep();  // the call was not the one that the menu is for
    }
  }
  if (call.mode.kind == Mode::Kind::kOffload && !frame->offloaded()) call.mode = Mode::keep();
}

// Its siblings in this step will be strange as well, and kept they might not fit.
void Session::note_strangers(std::uint16_t layer_class) {
  if (!strange_.insert(layer_class).second) return;
  class_tapes_[layer_class]->met_strangers(context_.shape);
}

bool Session::is_apart(std::size_t ordinal, const std::vector<at::Tensor>& inputs) const {
  const bool seen = ordinal > 0 && ordinal <= calls_.size() && !calls_[ordinal - 1].passed_by;
  if (seen) return !reads_latest(inputs);
  return ordinal < structure_.layers.size() && structure_.layers[ordinal].apart;
}

bool Session::reads_latest(const std::vector<at::Tensor>& inputs) const {
  return std::ranges::any_of(inputs, [this](const at::Tensor& input) {
    if (!input.defined() || !input.has_storage()) return false;
    const c10::StorageImpl* const storage = input.storage().unsafeGetStorageImpl();
    return std::ranges::any_of(latest_storages_, [storage](const auto& output) {
      return output._unsafe_get_target() == storage;
    });
  });
}

void Session::abandon_layers() noexcept {
  if (!open_layer_) return;
  call_failed_ = true;
  const std::shared_ptr<Frame> frame = std::move(open_layer_->frame);
  open_layer_.reset();
  inside_.store({});
  if (!frame) return;
  contain("the end of a layer that threw", [&] {
    frame->abort_part();
    frame->finish();
  });
  open_segment_.reset();
}

std::shared_ptr<const ClassMenu> Session::menu_of(std::uint16_t layer_class) const {
  const auto& tapes = class_tapes_[layer_class];
  return tapes ? tapes->menu() : nullptr;
}

}  // namespace pudica::hooks
