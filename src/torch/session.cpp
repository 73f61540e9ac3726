#include "torch/session.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "base/layer_order.h"
#include "base/log.h"
#include "torch/step_times.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Session::Session(AttachOptions options, Meter& meter)
    : options_(std::move(options)),
      share_(DeviceShare::of(options_.device, meter)),
      meter_(meter),
      registry_(share_->registry()),
      state_(std::make_shared<StepState>(registry_)),
      residents_(meter, options_.device),
      host_clock_(options_.clock),
      claim_(std::make_shared<std::atomic<bool>>(false)) {
  residents_.add(options_.parameters);
  set_budget(options_.budget_bytes);
  contain("the policy's eviction", [this] {
    const auto eviction = options_.policy->eviction();
    if (!eviction) return;
    eviction_ = std::make_shared<EvictionControl>(EvictionControl{
        eviction->rule, host_clock_, host_clock_.now(), std::mt19937_64(eviction->seed)});
  });
  contain("the policy's keep_operators", [this] {
    auto names = options_.policy->keep_operators();
    if (names.empty()) return;
    keep_operators_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  });
  if (host_clock_.is_set()) return;
  contain("the device's clock", [this] { clock_ = make_device_clock(options_.device); });
}

Session::~Session() { detach(); }

void Session::fail(const char* where, const std::string& what) noexcept {
  ++failures_;
  policy_failed_ = true;
  if (failures_ == 1) {
    log_warn(std::string("training goes on without a plan: ") + where + ": " + what);
  }
}

void Session::set_budget(Bytes budget_bytes) {
  options_.budget_bytes = budget_bytes;
  if (!share_) return;
  share_->set_cap(claim_, budget_bytes.count(), options_.enforcement == Enforcement::kHard);
}

void Session::detach() {
  if (!attached_) return;
  attached_ = false;
  abandon_layers();
  close_segment();
  state_->end();
  share_->release(claim_);
  share_.reset();
  residents_.clear();
  late_times_.clear();
}

bool Session::gradients_present() const {
  for (const at::Tensor& parameter : options_.parameters) {
    if (parameter.grad().defined()) return true;
  }
  return false;
}

bool Session::is_another_threads() {
  const std::thread::id inside = inside_.load();
  if (inside == std::thread::id() || inside == std::this_thread::get_id()) return false;
  if (!std::exchange(told_of_two_threads_, true)) {
    log_warn(
        "a step was begun while another thread is inside a layer of the same model: it runs "
        "without a plan; a handle is for one thread");
  }
  return true;
}

void Session::begin_step(const ShapeKey& shape) { open_step(shape, /*at_layer=*/false); }

void Session::begin_at_layer(const ShapeKey& shape) { open_step(shape, /*at_layer=*/true); }

bool Session::waits() {
  const std::thread::id inside = inside_.load();
  if (inside != std::thread::id() && inside != std::this_thread::get_id()) return false;
  if (!step_open_ || !shared_backward_.own_waits()) return false;
  in_use_at_forward_ = meter_.in_use_bytes();
  return true;
}

// Of the step that begins.
StepContext Session::context_of(const ShapeKey& shape, bool casts_present) const {
  const Bytes left_free = left_free_bytes();
  const std::int64_t returning = held_returns_ && !casts_.are_new() ? meter_.held_bytes() : 0;
  return {shape,
          Bytes(in_use_before_ - returning),
          options_.budget_bytes - left_free,
          gradients_present(),
          Bytes(returning),
          shared_backward_.waiting(),
          shared_backward_.expected(),
          shared_backward_.is_sure(),
          step_,
          left_free,
          casts_present};
}

void Session::open_step(const ShapeKey& shape, bool at_layer) {
  if (is_another_threads()) return;
  if (step_open_) end_step();
  if (!attached_) return;
  if (options_.next_budget) {
    contain("the budget's source", [this] {
      if (const auto budget = options_.next_budget()) set_budget(*budget);
    });
  }
  abandon_layers();
  step_open_ = true;
  thread_ = std::this_thread::get_id();
  began_at_layer_ = at_layer;
  within_backward_ = torch::autograd::get_current_graph_task_id();
  sequence_began_ = at::sequence_number::peek();
  step_began_ = host_clock_.now();
  ++step_;
  const bool follows = shared_backward_.begin_forward() > 0;
  next_layer_ = follows ? next_layer_ + static_cast<std::int32_t>(calls_.size()) : 0;
  calls_.clear();
  strange_.clear();
  strayed_.clear();
  rest_.reset();
  passed_by_ = -1;
  call_failed_ = false;
  residents_.sweep();
  claim_->store(false);
  share_->claim(claim_, options_.budget_bytes.count(), options_.enforcement == Enforcement::kHard);
  meter_.reset_peak();
  in_use_before_ = meter_.in_use_bytes();
  const auto at_forward = std::exchange(in_use_at_forward_, std::nullopt);
  if (at_layer && at_forward) in_use_before_ = *at_forward;
  if (host_) host_->pool().reset_peak();
  if (shared_backward_.waiting() == 0) waiting_.clear();
  meter_.begin_forward(shared_backward_.waiting() > 0);
  revocations_before_ = registry_->revocations();
  overruns_before_ = meter_.overruns();
  refusals_before_ = meter_.refusals();
  const bool casts_present = casts_.hold_since_last_forward(options_.device);
  context_ = context_of(shape, casts_present);
  decision_ = {};
  learn_late_times();
  const auto begin = Clock::now();
  if (!policy_failed_) {
    contain("the policy's begin_step", [&] { decision_ = options_.policy->begin_step(context_); });
    if (policy_failed_) decision_ = {};
  }
  plan_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  free_one_waits_ = context_.waiting_forwards > 0 && ran_hook_free_;
  held_predictions_.begin(shape, decision_.plan.get());
  course_leaves_doubt_ = false;
  called_others_ = false;
  prepare_cache();
  timer_ = timer_of_step();
  // What comes before the first layer is measured until it shows whether the step is.
  const bool listens = decision_.record || decision_.may_change;
  state_->begin(step_, {listens, decision_.plan, timer_,
                        static_cast<std::uint64_t>(context_.waiting_forwards), next_layer_});
  if (listens) {
    share_->set_recorder(claim_, &state_->recorder());
    state_->mark(MarkKind::kStepBegin, -1);
  }
}

// Which kind of step it is, its first layer tells.
void Session::settle_decision(std::uint16_t first_class) {
  decision_.may_change = false;
  const auto begin = Clock::now();
  contain("the policy's replan", [&] {
    auto other = options_.policy->replan(context_, first_class);
    if (!other) return;
    decision_ = std::move(*other);
    prepare_cache();
  });
  plan_ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
  held_predictions_.begin(context_.shape, decision_.plan.get());
  if (decision_.record) timer_ = timer_of_step();
  state_->settle(decision_.plan, decision_.record, timer_);
  if (!decision_.record) share_->set_recorder(claim_, nullptr);
}

StepStructure Session::structure_of_step() const {
  StepStructure structure;
  structure.class_names = class_names_;
  std::vector<std::uint16_t> order;
  for (const Call& call : calls_) order.push_back(call.layer_class);
  structure.layers = layers_of(order);
  for (std::size_t i = 0; i < calls_.size(); ++i) structure.layers[i].apart = calls_[i].apart;
  for (std::size_t i = 0; i < class_tapes_.size(); ++i) {
    auto menu = class_tapes_[i] ? class_tapes_[i]->told(context_.shape) : std::nullopt;
    if (!menu) continue;
    structure.menus.resize(i + 1);
    structure.menus[i] = std::move(*menu);
  }
  return structure;
}

bool Session::ran_as_planned() const {
  return strange_.empty() && std::ranges::none_of(calls_, [](const Call& call) {
           return call.collected || call.on_trial || call.dropped_late;
         });
}

std::vector<RecordedCall> Session::recorded_calls(const StepStructure& structure) const {
  std::vector<RecordedCall> recorded;
  const OutputWatch outputs = state_->outputs();
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const auto layer = static_cast<std::int32_t>(i);
    const Call& call = calls_[i];
    const bool joined = call.joined || (i + 1 < calls_.size() && calls_[i + 1].joined);
    const bool revoked = state_->was_revoked(layer);
    recorded.push_back({call.layer_class,
                        structure.layers[i].variant,
                        call.mode,
                        joined || revoked || call.taken_back,
                        call.joined,
                        call.collected,
                        call.on_trial || call.dropped_late,
                        call.no_gradient,
                        outputs.held_bytes(layer),
                        outputs.left_bytes(layer),
                        {},
                        {},
                        state_->recovery(layer),
                        call.forward});
    for (const void* const place : outputs.gone_early(layer)) {
      const std::int64_t event = state_->recorder().freed_at(place);
      if (event != Recorder::kNone) recorded.back().early_frees.push_back(event);
    }
    recorded.back().unread_frees = state_->unread_frees(layer);
  }
  return recorded;
}

std::vector<std::int64_t> Session::shared_frees() const {
  std::vector<std::int64_t> events;
  const OutputWatch outputs = state_->outputs();
  for (const void* const place : outputs.shared()) {
    const std::int64_t event = state_->recorder().freed_at(place);
    if (event != Recorder::kNone) events.push_back(event);
  }
  return events;
}

bool Session::is_cut_short() const {
  if (claim_->load()) return true;  // its measurements are another model's too
  if (rest_.rests()) return passed_by_ < 0 || shared_backward_.has_none();
  // It threw in front of its first layer: a step without layers, where there are some, is none.
  if (calls_.empty() && !structure_.layers.empty()) return true;
  return shared_backward_.has_none();
}

// Of a step that is over, but for what was recorded.
StepOutcome Session::outcome_of(const StepReport& report) const {
  const double seconds = host_clock_.now().passed_since(step_began_);
  StepOutcome outcome{context_,           decision_.plan, report.peak_bytes, seconds,
                      report.revocations, report.overrun, call_failed_,      {}};
  outcome.rested = report.rested;
  outcome.ran_free = report.ran_free;
  outcome.other_layers = report.other_layers;
  outcome.repeated_backward = report.repeated_backward;
  outcome.layer_calls = report.layer_calls;
  outcome.recomputed_layers = report.recomputed_layers;
  outcome.host_peak_bytes = report.host_peak_bytes;
  if (meter_.cache_bytes()) {
    outcome.allocator =
        AllocatorPeaks{report.active_peak_bytes, report.reserved_peak_bytes, report.gap_bytes};
  }
  return outcome;
}

StepReport Session::end_step() {
  StepReport report;
  if (!step_open_ || is_another_threads()) return report;
  step_open_ = false;
  close_segment();
  state_->mark(MarkKind::kStepEnd, -1);
  meter_.end_forward();
  if (meter_.held_bytes() > 0 && !casts_.are_new()) {
    held_returns_ = Meter::nearly_all_returned(meter_.returned_bytes(), meter_.held_bytes());
  }
  if (share_) share_->release(claim_);
  cut_short_.note(claim_->load());
  call_failed_ = call_failed_ || is_cut_short();
  const bool waits = !call_failed_ && shared_backward_.own_waits();
  report.step = step_;
  report.shape = context_.shape;
  report.plan = decision_.plan;
  report.base_bytes = context_.base_bytes;
  report.peak_bytes = Bytes(meter_.peak_bytes());
  report.budget_bytes = context_.budget_bytes + context_.allocator_bytes;
  report.rested = rest_.rests();
  report.ran_free = report.rested || ran_free();
  report_cache(report);
  report.layer_calls = report.rested ? std::max<std::int64_t>(0, passed_by_) : std::ssize(calls_);
  report.recomputed_layers = state_->recomputes();
  report.revocations = registry_->revocations() - revocations_before_;
  report.overrun = meter_.overruns() > overruns_before_;
  note_hook_free(report);
  if (!call_failed_) judge_prediction(report);
  note_course(waits);
  if (host_) report.host_peak_bytes = Bytes(host_->pool().peak_bytes());
  report.recorded = decision_.record;
  report.other_layers = called_others_;
  report.repeated_backward = shared_backward_.is_repeated() || state_->backward_repeated();
  report.other_course = !call_failed_ && waits != (context_.following_forwards > 0);
  report.plan_ns = plan_ns_;
  learn_times();
  if (!policy_failed_) {
    contain("the policy's end_step", [&] {
      const StepStructure structure = structure_of_step();
      if (!call_failed_ && !calls_.empty() && !(structure == structure_)) {
        structure_ = structure;
        options_.policy->on_structure(structure_);
      }
      StepOutcome outcome = outcome_of(report);
      outcome.waits = waits;
      outcome.searched = !ran_as_planned();
      const std::vector<RecordedCall> calls = recorded_calls(structure);
      StepTimes times = call_failed_ ? StepTimes() : sum_times(calls);
      outcome.forwards = std::move(times.forwards);
      if (decision_.record && !call_failed_ && !outcome.repeated_backward) {
        StepProfile profile = build_profile(
            state_->recorder(), {calls, shared_frees(), context_.gradients_present, began_at_layer_,
                                 context_.waiting_forwards > 0, waits, context_.casts_present});
        outcome.segments = std::move(profile.observations);
        late_times_.add(context_, std::move(profile.late));
        tell_waiting(waits, calls, outcome);
      } else if (!decision_.record) {
        outcome.recomputes = std::move(times.recomputes);
        late_times_.add(context_, std::move(times.late));
      }
      options_.policy->end_step(outcome);
    });
  }
  state_->end();
  decision_ = {};
  return report;
}

}  // namespace pudica::hooks
