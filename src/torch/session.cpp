#include "torch/session.h"

#include <chrono>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>

#include "base/log.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

using Clock = std::chrono::steady_clock;

bool revoke_callback(void* context, std::int64_t missing_bytes) {
  return static_cast<Registry*>(context)->revoke(missing_bytes);
}

// The first tensor a gradient will flow through; null if there is none.
const at::Tensor* gradient_path(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.requires_grad()) return &tensor;
  }
  return nullptr;
}

}  // namespace

Session::Session(AttachOptions options, Meter& meter)
    : options_(std::move(options)),
      meter_(meter),
      registry_(std::make_shared<Registry>(meter)),
      state_(std::make_shared<StepState>(registry_)) {
  set_budget(options_.budget_bytes);
  meter_.set_pressure_callback(&revoke_callback, registry_.get());
}

Session::~Session() { detach(); }

template <typename F>
bool Session::contain(const char* where, F&& call) noexcept {
  try {
    call();
    return true;
  } catch (const std::exception& error) {
    fail(where, error.what());
  } catch (...) {
    fail(where, "an exception of unknown type");
  }
  return false;
}

void Session::fail(const char* where, const std::string& what) noexcept {
  ++failures_;
  policy_failed_ = true;
  if (failures_ == 1) {
    log_warn(std::string("training goes on without a plan: ") + where + ": " + what);
  }
}

void Session::set_budget(Bytes budget_bytes) {
  options_.budget_bytes = budget_bytes;
  meter_.set_cap(budget_bytes.count(), options_.enforcement == Enforcement::kHard);
}

void Session::detach() {
  if (!attached_) return;
  attached_ = false;
  close_segment();
  state_->end();
  meter_.set_recorder(nullptr);
  meter_.set_pressure_callback(nullptr, nullptr);
  meter_.set_cap(0, false);
}

bool Session::takes_part() const {
  return attached_ && step_open_ && this_thread_layers_open() == 0 && at::GradMode::is_enabled() &&
         !c10::InferenceMode::is_enabled();
}

bool Session::gradients_present() const {
  for (const at::Tensor& parameter : options_.parameters) {
    if (parameter.grad().defined()) return true;
  }
  return false;
}

void Session::begin_step(const ShapeKey& shape) {
  if (step_open_) end_step();
  if (!attached_) return;
  if (options_.next_budget) {
    contain("the budget's source", [this] {
      if (const auto budget = options_.next_budget()) set_budget(*budget);
    });
  }
  step_open_ = true;
  step_began_ = Clock::now();
  ++step_;
  calls_.clear();
  call_failed_ = false;
  meter_.reset_peak();
  revocations_before_ = registry_->revocations();
  overruns_before_ = meter_.overruns();
  context_ = {shape, Bytes(meter_.in_use_bytes()), options_.budget_bytes, gradients_present()};
  decision_ = {};
  const auto begin = Clock::now();
  if (!policy_failed_) {
    contain("the policy's begin_step", [&] { decision_ = options_.policy->begin_step(context_); });
    if (policy_failed_) decision_ = {};
  }
  plan_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  state_->begin(step_, decision_.record, decision_.plan);
  if (decision_.record) {
    meter_.set_recorder(&state_->recorder());
    state_->mark(MarkKind::kStepBegin, -1);
  }
}

std::uint16_t Session::class_of(const std::string& name, const std::vector<at::Tensor>& inputs) {
  // What of the inputs changes what a layer saves: which need gradients, their types and ranks.
  std::string key = name;
  for (const at::Tensor& input : inputs) {
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
    if (!input.is_contiguous()) key += 'n';
  }
  const auto found = classes_.find(key);
  if (found != classes_.end()) return found->second;
  const auto id = static_cast<std::uint16_t>(classes_.size());
  classes_.emplace(std::move(key), id);
  class_names_.push_back(name);
  class_forward_us_.push_back(0);
  const bool tapes = options_.policy->wants_menus() && tape_available();
  class_tapes_.push_back(tapes ? std::make_shared<ClassTapes>() : nullptr);
  return id;
}

Mode Session::mode_of(std::size_t ordinal, std::uint16_t layer_class) const {
  if (state_->is_quarantined(layer_class) || !decision_.plan) return Mode::keep();
  const Plan& plan = *decision_.plan;
  if (ordinal < plan.modes.size()) return plan.modes[ordinal];
  if (!plan.teach_first_of_class) return plan.default_mode;
  for (const Call& call : calls_) {
    if (call.layer_class == layer_class) return plan.default_mode;
  }
  return Mode::full();
}

bool Session::is_joined(std::size_t ordinal) const {
  return decision_.plan && ordinal < decision_.plan->joined.size() &&
         decision_.plan->joined[ordinal] != 0;
}

bool Session::keeps_revocably() const {
  if (!decision_.plan) return options_.budget_bytes.count() > 0;
  return decision_.plan->revocable;
}

std::shared_ptr<Frame> Session::open_frame(std::size_t ordinal, const Call& call) {
  if (call.joined && open_segment_) return open_segment_;
  close_segment();
  FrameOptions frame;
  frame.store = call.mode.kind != Mode::Kind::kFull;
  frame.registry = frame.store && keeps_revocably() ? registry_ : nullptr;
  if (frame.store) frame.tapes = class_tapes_[call.layer_class];
  if (call.mode.kind == Mode::Kind::kSelective) frame.menu_step = call.mode.step;
  frame.layer = static_cast<std::int32_t>(ordinal);
  frame.layer_class = call.layer_class;
  frame.expected_recompute_us = class_forward_us_[call.layer_class];
  frame.device = options_.device;
  frame.observer = state_;
  return Frame::make(std::move(frame));
}

void Session::close_segment() {
  if (open_segment_) open_segment_->finish();
  open_segment_.reset();
}

std::vector<at::Tensor> Session::layer(std::int64_t /*index*/, const LayerFunction& function,
                                       std::vector<at::Tensor> inputs,
                                       const LayerOptions& options) {
  if (!takes_part()) return function(inputs);
  const LayerDepth depth;
  const std::size_t ordinal = calls_.size();
  Call call;
  call.layer_class = class_of(options.layer_class, inputs);
  call.mode = mode_of(ordinal, call.layer_class);
  call.joined = is_joined(ordinal) && call.mode.kind == Mode::Kind::kFull;
  calls_.push_back(call);
  const bool recording = decision_.record;
  if (recording) state_->mark(MarkKind::kForwardBegin, static_cast<std::int32_t>(ordinal));
  if (decision_.plan && ordinal < decision_.plan->forward_need_bytes.size()) {
    registry_->make_room(decision_.plan->forward_need_bytes[ordinal]);
  }
  const auto begin = Clock::now();
  std::vector<at::Tensor> outputs;
  try {
    outputs = run(ordinal, function, inputs, options);
  } catch (...) {
    call_failed_ = true;
    throw;
  }
  calls_[ordinal].forward_us =
      std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  if (recording) {
    hook_borders(ordinal, inputs, outputs);
    inputs.clear();
    state_->mark(MarkKind::kForwardEnd, static_cast<std::int32_t>(ordinal));
  }
  return outputs;
}

std::vector<at::Tensor> Session::run(std::size_t ordinal, const LayerFunction& function,
                                     const std::vector<at::Tensor>& inputs,
                                     const LayerOptions& options) {
  const Call& call = calls_[ordinal];
  const bool kept = call.mode.kind != Mode::Kind::kFull &&
                    (call.mode.kind != Mode::Kind::kSelective || !menu_of(call.layer_class));
  const bool hook_free = kept && (!keeps_revocably() || state_->is_quarantined(call.layer_class));
  if (hook_free) {
    close_segment();
    return function(inputs);
  }
  const std::shared_ptr<Frame> frame = open_frame(ordinal, call);
  const bool continues = call.mode.kind == Mode::Kind::kFull && is_joined(ordinal + 1);
  struct Finish {
    Frame* frame;
    ~Finish() {
      if (frame != nullptr) frame->finish();
    }
  };
  if (continues) open_segment_ = frame;
  std::vector<at::Tensor> outputs;
  {
    const Finish finish{continues ? nullptr : frame.get()};
    outputs = frame->run_part(function, inputs, options.buffers);
  }
  Call& done = calls_[ordinal];
  done.collected = frame->searched();
  if (done.mode.kind == Mode::Kind::kSelective && !frame->taped()) {
    done.mode = Mode::keep();  // the call was not the one that the menu is for
  }
  if (!continues) open_segment_.reset();
  return outputs;
}

std::shared_ptr<const ClassMenu> Session::menu_of(std::uint16_t layer_class) const {
  const auto& tapes = class_tapes_[layer_class];
  return tapes ? tapes->menu() : nullptr;
}

void Session::hook_borders(std::size_t ordinal, const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& outputs) {
  const auto watch = [&](const at::Tensor* tensor, MarkKind kind) {
    if (tensor == nullptr) return;
    tensor->register_hook([state = state_, step = step_, kind,
                           layer = static_cast<std::int32_t>(ordinal)](const at::Tensor&) {
      state->border(step, kind, layer);
      return at::Tensor();
    });
  };
  contain("a gradient hook", [&] {
    watch(gradient_path(outputs), MarkKind::kBorder);
    if (ordinal == 0) watch(gradient_path(inputs), MarkKind::kInputBorder);
  });
}

StepStructure Session::structure_of_step() const {
  StepStructure structure;
  structure.class_names = class_names_;
  for (const Call& call : calls_) structure.layers.push_back({call.layer_class, 0});
  for (std::size_t i = 0; i < class_tapes_.size(); ++i) {
    const auto menu = menu_of(static_cast<std::uint16_t>(i));
    if (!menu) continue;
    structure.menus.resize(i + 1);
    structure.menus[i].id = menu->id;
    for (const MenuStep& step : menu->steps) structure.menus[i].steps.push_back(to_string(step));
  }
  std::set<std::uint16_t> seen;
  for (std::size_t i = structure.layers.size(); i-- > 0;) {
    if (seen.insert(structure.layers[i].layer_class).second) {
      structure.layers[i].variant |= SegmentKey::kLastOfClass;
    }
  }
  return structure;
}

std::vector<RecordedCall> Session::recorded_calls() const {
  std::vector<RecordedCall> recorded;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const Call& call = calls_[i];
    const bool joined = call.joined || (i + 1 < calls_.size() && calls_[i + 1].joined);
    const bool revoked = state_->was_revoked(static_cast<std::int32_t>(i));
    recorded.push_back({call.layer_class, structure_.layers[i].variant, call.mode,
                        joined || revoked, call.collected,
                        state_->recovery_seconds(static_cast<std::int32_t>(i))});
  }
  return recorded;
}

void Session::learn_times() {
  for (const Call& call : calls_) {
    double& known = class_forward_us_[call.layer_class];
    known = known == 0 ? call.forward_us : known + 0.1 * (call.forward_us - known);
  }
}

StepReport Session::end_step() {
  StepReport report;
  if (!step_open_) return report;
  step_open_ = false;
  close_segment();
  state_->mark(MarkKind::kStepEnd, -1);
  meter_.set_recorder(nullptr);
  report.step = step_;
  report.shape = context_.shape;
  report.plan = decision_.plan;
  report.base_bytes = context_.base_bytes;
  report.peak_bytes = Bytes(meter_.peak_bytes());
  report.budget_bytes = context_.budget_bytes;
  report.layer_calls = static_cast<std::int64_t>(calls_.size());
  report.recomputed_layers = state_->recomputes();
  report.revocations = registry_->revocations() - revocations_before_;
  report.overrun = meter_.overruns() > overruns_before_;
  report.recorded = decision_.record;
  report.plan_ns = plan_ns_;
  learn_times();
  if (!policy_failed_) {
    contain("the policy's end_step", [&] {
      const StepStructure structure = structure_of_step();
      if (!call_failed_ && !calls_.empty() && !(structure == structure_)) {
        structure_ = structure;
        options_.policy->on_structure(structure_);
      }
      const double seconds = std::chrono::duration<double>(Clock::now() - step_began_).count();
      StepOutcome outcome{context_,           decision_.plan, report.peak_bytes, seconds,
                          report.revocations, report.overrun, call_failed_,      {}};
      outcome.recomputed_layers = report.recomputed_layers;
      if (decision_.record && !call_failed_ && !state_->backward_repeated()) {
        outcome.segments =
            build_observations(state_->recorder(), recorded_calls(), context_.gradients_present);
      }
      options_.policy->end_step(outcome);
    });
  }
  state_->end();
  decision_ = {};
  return report;
}

}  // namespace pudica::hooks
