#include <span>
#include <utility>

#include <torch/csrc/autograd/engine.h>

#include "base/log.h"
#include "torch/session.h"

namespace pudica::hooks {

void StepState::begin(std::uint64_t step, Begin with) {
  recomputes_.store(0);
  oldest_waiting_.store(step - with.waiting);
  first_layer_.store(with.first_layer);
  handed_over_.store(false);
  backward_begun_.store(false);
  backward_ended_.store(false);
  backward_repeated_.store(false);
  recorder_.clear();
  recorder_.set_timer(with.timer);
  {
    const std::lock_guard lock(mutex_);
    revoked_.clear();
    recovery_.clear();
    recompute_began_.clear();
    places_.clear();
    borders_.clear();
    latest_border_ = -1;
    outputs_.clear();
    watches_.clear();
    plan_ = std::move(with.plan);
    timer_ = std::move(with.timer);
  }
  step_.store(step);
  recording_.store(with.recording);
}

void StepState::settle(PlanPtr plan, bool recording, WorkTimer timer) {
  recording_.store(recording);
  recorder_.set_timer(timer);
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
  timer_ = std::move(timer);
}

void StepState::placed(std::int32_t layer, std::size_t place) {
  const std::lock_guard lock(mutex_);
  places_.insert_or_assign(layer, place);
}

void StepState::end() { recording_.store(false); }

void StepState::mark(MarkKind kind, std::int32_t layer) {
  if (recording_.load()) recorder_.mark(kind, layer);
}

void StepState::border(std::uint64_t step, MarkKind kind, std::int32_t layer) {
  if (!recording_.load()) return;
  if (step_.load() != step) {
    const bool waited = step < step_.load() && step >= oldest_waiting_.load();
    if (waited) hands_over(step_.load());
    return;
  }
  if (backward_ended_.load()) {
    backward_repeated_.store(true);
    return;
  }
  if (!backward_begun_.exchange(true)) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [state = std::static_pointer_cast<StepState>(shared_from_this()), step] {
          if (state->recording_.load() && state->step_.load() == step &&
              !state->backward_ended_.exchange(true)) {
            state->end_layer();
            state->recorder_.mark(MarkKind::kBackwardEnd, -1);
          }
        });
  }
  if (is_first_border(kind, layer)) recorder_.mark(kind, layer);
}

void StepState::hands_over(std::uint64_t step) {
  if (!recording_.load() || step_.load() != step || !backward_begun_.load()) return;
  if (!handed_over_.exchange(true)) recorder_.mark(MarkKind::kHandover, -1);
}

bool StepState::is_first_border(MarkKind kind, std::int32_t layer) {
  const std::lock_guard lock(mutex_);
  // An input that other layers read as well may be complete later: no border of a gap.
  if (kind == MarkKind::kInputBorder && layer > 0 && latest_border_ != layer) return false;
  if (!borders_.emplace(kind, layer).second) return false;
  if (kind == MarkKind::kBorder) {
    latest_border_ = layer;
    outputs_.begins(layer);
  } else {
    outputs_.ends();
  }
  return true;
}

void StepState::end_layer() {
  const std::lock_guard lock(mutex_);
  outputs_.ends();
}

void StepState::called(std::int32_t layer, const std::vector<at::Tensor>& inputs,
                       at::Device device) {
  const std::lock_guard lock(mutex_);
  const std::size_t known = outputs_.shared().size();
  const auto left = outputs_.called(layer, inputs, device, [this, layer](const void* place) {
    return recorder_.was_made_by(layer - 1, place);
  });
  for (const void* const place : left) recorder_.watch(place);
  for (const void* const place : std::span(outputs_.shared()).subspan(known)) {
    recorder_.watch(place);
  }
}

void StepState::made(std::int32_t layer, const std::vector<at::Tensor>& outputs,
                     at::Device device) {
  const std::lock_guard lock(mutex_);
  outputs_.made(layer, outputs, device);
  for (const void* const place : outputs_.places(layer)) {
    watches_.insert_or_assign({layer, place}, recorder_.watch(place));
  }
}

std::vector<std::int64_t> StepState::unread_frees(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> events;
  for (const void* const place : outputs_.unread(layer)) {
    const auto watch = watches_.find({layer, place});
    if (watch == watches_.end()) continue;
    const std::int64_t event = recorder_.freed_at(watch->second);
    if (event != Recorder::kNone) events.push_back(event);
  }
  return events;
}

OutputWatch StepState::outputs() const {
  const std::lock_guard lock(mutex_);
  return outputs_;
}

void StepState::before_recompute(std::int32_t layer) noexcept {
  recomputes_.fetch_add(1);
  layer -= first_layer_.load();
  if (layer < 0) return;  // of a forward before this step's
  std::int64_t need = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto moved = places_.find(layer);
    const std::size_t index =
        moved == places_.end() ? static_cast<std::size_t>(layer) : moved->second;
    if (plan_ && index < plan_->backward_need_bytes.size()) {
      need = plan_->backward_need_bytes[index];
    }
  }
  if (need > 0) registry_->make_room(need);
  mark(MarkKind::kRecomputeBegin, layer);
  const std::lock_guard lock(mutex_);
  recompute_began_.insert_or_assign(layer, timer_.now());
}

void StepState::after_recompute(std::int32_t layer) noexcept {
  layer -= first_layer_.load();
  if (layer < 0) return;
  mark(MarkKind::kRecomputeEnd, layer);
  const std::lock_guard lock(mutex_);
  const auto began = recompute_began_.find(layer);
  if (began != recompute_began_.end()) recovery_[layer].add(began->second, timer_.now());
}

void StepState::recovered(std::int32_t layer, const WorkTime& time) noexcept {
  const std::lock_guard lock(mutex_);
  recovery_[layer - first_layer_.load()].add(time);
}

void StepState::revoked(std::int32_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  revoked_.insert(layer - first_layer_.load());
}

WorkTime StepState::recovery(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  const auto found = recovery_.find(layer);
  return found == recovery_.end() ? WorkTime() : found->second;
}

bool StepState::was_revoked(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  return revoked_.contains(layer);
}

void StepState::recompute_deviated(std::int32_t layer, std::uint16_t layer_class,
                                   const std::string& what) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = quarantined_.insert(layer_class).second;
  }
  any_quarantined_.store(true);
  if (first) {
    log_warn("layer " + std::to_string(layer) +
             " does not reproduce itself when it is recomputed (" + what +
             "); its class is kept from now on");
  }
}

bool StepState::is_quarantined(std::uint16_t layer_class) const {
  if (!any_quarantined_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  return quarantined_.contains(layer_class);
}

void StepState::trial_passed(std::uint16_t layer_class, const BufferPlaces& changed,
                             bool keeps_state) noexcept {
  const std::lock_guard lock(mutex_);
  if (!changed.empty()) changing_buffers_[layer_class].insert(changed.begin(), changed.end());
  Proof& proof = proofs_[layer_class];
  if (proof.passes == 0 || proof.step != step_.load()) ++proof.passes;
  proof.step = step_.load();
  proof.keeps_state = proof.keeps_state || keeps_state;
}

void StepState::trial_due(std::uint16_t layer_class, const BufferPlaces& changed) noexcept {
  const std::lock_guard lock(mutex_);
  changing_buffers_[layer_class].insert(changed.begin(), changed.end());
  proofs_.erase(layer_class);
}

bool StepState::is_proven(std::uint16_t layer_class) const {
  const std::lock_guard lock(mutex_);
  const auto known = proofs_.find(layer_class);
  if (known == proofs_.end()) return false;
  const Proof& proof = known->second;
  return proof.passes > 1 || !proof.keeps_state;
}

BufferHabit StepState::buffer_habit(std::uint16_t layer_class) const {
  const std::lock_guard lock(mutex_);
  const auto proof = proofs_.find(layer_class);
  const auto changing = changing_buffers_.find(layer_class);
  return {changing == changing_buffers_.end() ? BufferPlaces() : changing->second,
          proof != proofs_.end() && !proof->second.keeps_state};
}

}  // namespace pudica::hooks
