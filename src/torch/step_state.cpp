#include "torch/step_state.h"

#include <span>
#include <utility>

#include <torch/csrc/autograd/engine.h>

#include "base/log.h"

namespace pudica::hooks {

void StepState::begin(std::uint64_t step, Begin with) {
  recomputes_.store(0);
  oldest_waiting_.store(step - with.waiting);
  first_layer_.store(with.first_layer);
  handed_over_.store(false);
  expects_border_.store(false);
  backward_begun_.store(false);
  backward_ended_.store(false);
  backward_repeated_.store(false);
  recorder_.clear();
  recorder_.set_timer(with.timer);
  {
    const std::lock_guard lock(mutex_);
    ForwardNotes before = std::exchange(own_, {});
    if (with.waiting == 0) {
      waiting_.clear();
    } else if (!before.outputs.empty()) {  // it was recorded
      before.layers = with.first_layer - before.first_layer;
      if (waiting_.size() == kMostWaiting) waiting_.erase(waiting_.begin());
      waiting_.push_back(std::move(before));
    }
    own_.step = step;
    own_.first_layer = with.first_layer;
    for (const ForwardNotes& notes : waiting_) {
      for (const void* const place : notes.outputs.live_places()) recorder_.watch(place);
    }
    places_.clear();
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
    if (!waited) return;
    if (!expects_border_.load()) begin_backward();
    hands_over(step_.load());
    waited_border(step, kind, layer);
    return;
  }
  if (backward_ended_.load()) {
    backward_repeated_.store(true);
    return;
  }
  begin_backward();
  const std::lock_guard lock(mutex_);
  if (own_.is_first_border(kind, layer)) recorder_.mark(kind, layer);
}

// The first of this step's.
void StepState::begin_backward() {
  if (backward_begun_.exchange(true)) return;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [state = std::static_pointer_cast<StepState>(shared_from_this()), step = step_.load()] {
        if (state->recording_.load() && state->step_.load() == step &&
            !state->backward_ended_.exchange(true)) {
          state->end_layer();
          state->recorder_.mark(MarkKind::kBackwardEnd, -1);
        }
      });
}

// The backward of what a forward before this step's made, where it goes on to that.
void StepState::waited_border(std::uint64_t step, MarkKind kind, std::int32_t layer) {
  if (!backward_begun_.load() || backward_ended_.load()) return;
  const std::lock_guard lock(mutex_);
  const auto notes = std::ranges::find(waiting_, step, &ForwardNotes::step);
  if (notes == waiting_.end() || !notes->is_first_border(kind, layer)) return;
  recorder_.mark(kind, layer, steps_before(*notes));
}

void StepState::hands_over(std::uint64_t step) {
  if (!recording_.load() || !backward_begun_.load()) return;
  if (step_.load() == step) {
    if (!handed_over_.exchange(true)) recorder_.mark(MarkKind::kHandover, -1);
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto notes = std::ranges::find(waiting_, step, &ForwardNotes::step);
  if (notes == waiting_.end() || std::exchange(notes->handed_over, true)) return;
  recorder_.mark(MarkKind::kHandover, -1, steps_before(*notes));
}

bool ForwardNotes::is_first_border(MarkKind kind, std::int32_t layer) {
  // An input that other layers read as well may be complete later: no border of a gap.
  if (kind == MarkKind::kInputBorder && layer > 0 && latest_border != layer) return false;
  if (!borders.emplace(kind, layer).second) return false;
  if (kind == MarkKind::kBorder) {
    latest_border = layer;
    outputs.begins(layer);
  } else {
    outputs.ends();
  }
  return true;
}

void StepState::end_layer() {
  const std::lock_guard lock(mutex_);
  own_.outputs.ends();
  for (ForwardNotes& notes : waiting_) notes.outputs.ends();
}

std::optional<ForwardNotes> StepState::waited(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto notes = std::ranges::find(waiting_, step, &ForwardNotes::step);
  return notes == waiting_.end() ? std::nullopt : std::optional(*notes);
}

ForwardNotes* StepState::notes_of(std::int32_t& layer) {
  if (layer >= own_.first_layer) {
    layer -= own_.first_layer;
    return &own_;
  }
  for (ForwardNotes& notes : waiting_) {
    const std::int32_t place = layer - notes.first_layer;
    if (place < 0 || place >= notes.layers) continue;
    layer = place;
    return &notes;
  }
  return nullptr;
}

void StepState::called(std::int32_t layer, const std::vector<at::Tensor>& inputs,
                       at::Device device) {
  const std::lock_guard lock(mutex_);
  const std::size_t known = own_.outputs.shared().size();
  const auto left = own_.outputs.called(layer, inputs, device, [this, layer](const void* place) {
    return recorder_.was_made_by(layer - 1, place);
  });
  for (const void* const place : left) recorder_.watch(place);
  for (const void* const place : std::span(own_.outputs.shared()).subspan(known)) {
    recorder_.watch(place);
  }
}

void StepState::made(std::int32_t layer, const std::vector<at::Tensor>& outputs,
                     at::Device device) {
  const std::lock_guard lock(mutex_);
  own_.outputs.made(layer, outputs, device);
  for (const void* const place : own_.outputs.places(layer)) {
    own_.watches.insert_or_assign({layer, place}, recorder_.watch(place));
  }
}

std::vector<std::int64_t> StepState::unread_frees(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> events;
  for (const void* const place : own_.outputs.unread(layer)) {
    const auto watch = own_.watches.find({layer, place});
    if (watch == own_.watches.end()) continue;
    const std::int64_t event = recorder_.freed_at(watch->second);
    if (event != Recorder::kNone) events.push_back(event);
  }
  return events;
}

OutputWatch StepState::outputs() const {
  const std::lock_guard lock(mutex_);
  return own_.outputs;
}

void StepState::before_recompute(std::int32_t layer) noexcept {
  recomputes_.fetch_add(1);
  std::int64_t need = 0;
  if (const std::int32_t own = layer - first_layer_.load(); own >= 0) {
    const std::lock_guard lock(mutex_);
    const auto moved = places_.find(own);
    const std::size_t index =
        moved == places_.end() ? static_cast<std::size_t>(own) : moved->second;
    if (plan_ && index < plan_->backward_need_bytes.size()) {
      need = plan_->backward_need_bytes[index];
    }
  }
  if (need > 0) registry_->make_room(need);
  const std::lock_guard lock(mutex_);
  ForwardNotes* const notes = notes_of(layer);
  if (notes == nullptr) return;
  if (recording_.load()) recorder_.mark(MarkKind::kRecomputeBegin, layer, steps_before(*notes));
  notes->recompute_began.insert_or_assign(layer, timer_.now());
}

void StepState::after_recompute(std::int32_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  ForwardNotes* const notes = notes_of(layer);
  if (notes == nullptr) return;
  if (recording_.load()) recorder_.mark(MarkKind::kRecomputeEnd, layer, steps_before(*notes));
  const auto began = notes->recompute_began.find(layer);
  if (began == notes->recompute_began.end()) return;
  notes->recovery[layer].add(began->second, timer_.now());
}

void StepState::recovered(std::int32_t layer, const WorkTime& time) noexcept {
  const std::lock_guard lock(mutex_);
  if (ForwardNotes* const notes = notes_of(layer)) notes->recovery[layer].add(time);
}

void StepState::revoked(std::int32_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  if (ForwardNotes* const notes = notes_of(layer)) notes->revoked.insert(layer);
}

WorkTime StepState::recovery(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  const auto found = own_.recovery.find(layer);
  return found == own_.recovery.end() ? WorkTime() : found->second;
}

bool StepState::was_revoked(std::int32_t layer) const {
  const std::lock_guard lock(mutex_);
  return own_.revoked.contains(layer);
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
