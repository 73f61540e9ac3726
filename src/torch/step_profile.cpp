#include "torch/step_profile.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "torch/head_release.h"
#include "torch/unread_outputs.h"

namespace pudica::hooks {
namespace {

struct Moved {  // into a segment, bytes at its begin and its end
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Reads marks in order and adds one observation a segment.
class ProfileBuilder {
 public:
  ProfileBuilder(const Recorder& recorder, const RecordedStep& step, std::int32_t steps_before = 0)
      : recorder_(recorder),
        step_(step),
        calls_(step.calls),
        marks_(recorder.marks()),
        accumulating_(step.gradients_present ? SegmentKey::kGradientsPresent : std::uint8_t{0}),
        waited_(steps_before > 0) {
    // One engine's pass is over for all.
    std::erase_if(marks_, [&](const Mark& mark) {
      return mark.steps_before != steps_before && mark.kind != MarkKind::kBackwardEnd;
    });
  }

  StepProfile build() {
    if (recorder_.overflowed() || calls_.empty() || !(waited_ || forward())) return {};
    if (step_.waits && !waited_) {
      add_until_next();
    } else {
      const std::size_t forward_only = observations_.size();
      if (!backward()) observations_.resize(forward_only);
    }
    return profile();
  }

 private:
  StepProfile profile() {
    StepProfile profile;
    for (std::size_t i = 0; i < observations_.size(); ++i) {
      const auto seconds = times_[i].seconds();
      observations_[i].sample.seconds = seconds.value_or(0);
      if (!seconds) profile.late.push_back({observations_[i].key, std::move(times_[i])});
    }
    profile.observations = std::move(observations_);
    return profile;
  }

  const Mark* take(MarkKind kind, std::int32_t layer) {
    if (next_ >= marks_.size()) return nullptr;
    const Mark& mark = marks_[next_];
    if (mark.kind != kind || (layer >= 0 && mark.layer != layer)) return nullptr;
    ++next_;
    return &mark;
  }

  void add(const SegmentKey& key, std::int32_t layer, const Mark& begin, const Mark& end,
           const Moved& moved = {}) {
    SegmentObservation observation{key.with_casts(step_.casts_present), layer, {}};
    SegmentSample& sample = observation.sample;
    const auto events = recorder_.events(begin.event, end.event);
    if (moved.first != 0) sample.deltas.push_back(moved.first);
    sample.deltas.insert(sample.deltas.end(), events.begin(), events.end());
    if (moved.last != 0) sample.deltas.push_back(moved.last);
    set_sums(sample);
    WorkTime time;
    time.add(begin.time, end.time);
    add(std::move(observation), std::move(time));
  }

  void add(SegmentObservation observation, WorkTime time) {
    observations_.push_back(std::move(observation));
    times_.push_back(std::move(time));
  }

  // For the segment added last, which begins with `begin`: as if the layer before it had held what
  // it let go of.
  void add_behind_holder(const Mark& begin, const RecordedCall& before, std::size_t moved_in) {
    SegmentObservation& observation = observations_.back();
    SegmentSample held = observation.sample;
    std::int64_t freed = 0;
    for (const std::int64_t event : before.early_frees) {
      const std::int64_t index = event - begin.event + static_cast<std::int64_t>(moved_in);
      if (event < begin.event || index >= static_cast<std::int64_t>(held.deltas.size())) continue;
      freed += std::exchange(held.deltas[static_cast<std::size_t>(index)], 0);
    }
    if (freed == 0) return;
    held.deltas.push_back(freed);
    set_sums(held);
    observation.behind_holder = std::move(held);
  }

  [[nodiscard]] SegmentKey step_key(SegmentKind kind) const {
    return {kind, 0, Mode::keep(), accumulating_};
  }

  [[nodiscard]] SegmentKey epilogue_key(std::size_t gap) const {
    return {SegmentKind::kEpilogue, static_cast<std::uint16_t>(gap), Mode::keep(), accumulating_};
  }

  [[nodiscard]] SegmentKey layer_key(SegmentKind kind, std::size_t layer) const {
    const RecordedCall& call = calls_[layer];
    return {kind, call.layer_class, call.mode, call.variant};
  }

  // Of a layer that was revoked the end of what it held is the revocation's.
  void note_unread(std::size_t i, const Mark& end) {
    if (calls_[i].disturbed) return;
    for (const std::int64_t event : calls_[i].unread_frees) {
      const bool is_last = i + 1 == calls_.size();
      if (event < end.event || event >= (is_last ? head_end_ : head_begin_.event)) continue;
      unread_.push_back({event, -recorder_.events(event, event + 1).front()});
    }
  }

  // Where the last layer has returned, and what nobody reads of those before it has gone.
  void find_head() {
    std::set<std::int64_t> unread;
    for (const RecordedCall& call : calls_) {
      if (!call.disturbed) unread.insert(call.unread_frees.begin(), call.unread_frees.end());
    }
    for (std::size_t k = 0; k < marks_.size(); ++k) {
      if (marks_[k].kind != MarkKind::kForwardEnd) continue;
      head_begin_ = marks_[k];
      head_end_ = k + 1 < marks_.size() ? marks_[k + 1].event : 0;
    }
    last_return_ = head_begin_.event;
    while (head_begin_.event < head_end_ && unread.contains(head_begin_.event)) ++head_begin_.event;
  }

  // As if what nobody reads had gone already: where nothing else happens there is no gap.
  void add_gap(std::size_t i, const Mark& begin, const Mark& end) {
    add({SegmentKind::kGap, static_cast<std::uint16_t>(i), Mode::keep(), 0},
        static_cast<std::int32_t>(i), begin, end);
    tell_both_ways(unread_, begin, end);
    const SegmentObservation& gap = observations_.back();
    const auto is_zero = [](std::int64_t delta) { return delta == 0; };
    const auto& deltas = gap.behind_holder ? gap.behind_holder->deltas : gap.sample.deltas;
    if (i == 0 || !std::ranges::all_of(deltas, is_zero)) return;
    observations_.pop_back();
    times_.pop_back();
  }

  // `known`: as many of what nobody reads were made before it.
  void add_forward(std::size_t i, const Mark& begin, const Mark& end, std::size_t known) {
    Moved own;
    for (const Unread& one : std::span(unread_).subspan(known)) own.last -= one.bytes;
    add(layer_key(SegmentKind::kForward, i), static_cast<std::int32_t>(i), begin, end, own);
    if (calls_[i].collected) times_.back() = {};
    tell_both_ways(std::span(unread_).first(known), begin, end);
  }

  void tell_both_ways(std::span<const Unread> unread, const Mark& begin, const Mark& end) {
    hooks::tell_both_ways(observations_.back(), unread, begin.event, end.event);
  }

  bool forward() {
    const Mark* last = take(MarkKind::kStepBegin, -1);
    if (last == nullptr) return false;
    find_head();
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const auto layer = static_cast<std::int32_t>(i);
      const Mark* begin = take(MarkKind::kForwardBegin, layer);
      const Mark* end = begin != nullptr ? take(MarkKind::kForwardEnd, layer) : nullptr;
      if (end == nullptr) return false;
      if (i == 0 ? !step_.begins_at_layer : begin->event > last->event && !calls_[i - 1].joined) {
        add_gap(i, *last, *begin);
      }
      const std::size_t known = unread_.size();
      note_unread(i, *end);
      if (!calls_[i].on_trial && !calls_[i].joined) add_forward(i, *begin, *end, known);
      last = end;
    }
    return true;
  }

  void add_until_next() {
    const Mark* end = take(MarkKind::kStepEnd, -1);
    if (end == nullptr || calls_.back().joined) return;
    add(SegmentKey::until_next(), -1, head_begin_, *end);
    tell_both_ways(unread_, head_begin_, *end);
  }

  // How far the backward has been read.
  struct Reading {
    const Mark* border = nullptr;        // of layer `lowest`, the last one read
    const Mark* input_border = nullptr;  // where a gap is before it
    std::size_t lowest = 0;
  };

  bool backward() {
    Reading at;
    for (std::size_t i = calls_.size(); i-- > 0;) {
      if (calls_[i].no_gradient) {
        add_empty_backward(i);
        continue;
      }
      const Mark* next = take(MarkKind::kBorder, static_cast<std::int32_t>(i));
      if (next == nullptr) return false;
      add_until_border(at, i, *next);
      at.border = next;
      at.lowest = i;
      if (!recomputes(i)) return false;
      at.input_border = take(MarkKind::kInputBorder, static_cast<std::int32_t>(i));
    }
    return at.border != nullptr && end_backward(at);
  }

  // What lies between what was read and `next`, the border of layer i.
  void add_until_border(const Reading& at, std::size_t i, const Mark& next) {
    const std::int64_t held = -calls_[i].held_output_bytes;
    if (at.border == nullptr) {
      if (calls_[i].joined || waited_) return;
      add_head(next, calls_[i]);
    } else if (at.input_border == nullptr) {
      if (finish_layer(at.lowest, *at.border, next, held)) {
        add_behind_holder(*at.border, calls_[i], calls_[at.lowest].held_output_bytes != 0 ? 1 : 0);
      }
    } else {
      const std::int64_t left = calls_[at.lowest].left_input_bytes;
      const bool told = finish_layer(at.lowest, *at.border, *at.input_border, -left);
      const std::int64_t behind = left + take_shared(told, *at.border, *at.input_border);
      add(epilogue_key(at.lowest), -1, *at.input_border, next, {behind, held});
    }
  }

  // From the first layer's border to the step's end.
  bool end_backward(const Reading& at) {
    const Mark* input_border = at.input_border;
    if (input_border == nullptr) input_border = take(MarkKind::kInputBorder, -1);
    const Mark* handover = take(MarkKind::kHandover, -1);
    const Mark* end = take(MarkKind::kBackwardEnd, -1);
    if (end == nullptr) return false;
    // Behind it comes the backward of another forward, whose beginning may not have been marked.
    if (step_.shares_backward && handover != nullptr) handed_over_ = own_end_at(*handover, *end);
    const Mark* own_end = end;
    if (step_.shares_backward) own_end = handed_over_ ? &*handed_over_ : nullptr;
    const std::int64_t left = own_end != nullptr ? calls_[at.lowest].left_input_bytes : 0;
    std::int64_t behind = left;
    if (input_border != nullptr || own_end != nullptr) {
      const Mark& layer_end = input_border != nullptr ? *input_border : *own_end;
      const bool told = finish_layer(at.lowest, *at.border, layer_end, -left);
      if (own_end != nullptr) behind += take_shared(told, *at.border, layer_end);
    }
    if (input_border != nullptr && own_end != nullptr) {
      add(epilogue_key(0), -1, *input_border, *own_end, {behind, 0});
    }
    if (waited_) return true;
    const Mark* step_end = take(MarkKind::kStepEnd, -1);
    if (step_end == nullptr) return false;
    const Moved moved{input_border != nullptr ? 0 : behind, 0};
    add(step_key(SegmentKind::kOptimizer), -1, *end, *step_end, moved);
    return true;
  }

  // What the last of a backward frees goes right behind it.
  [[nodiscard]] Mark own_end_at(Mark handover, const Mark& end) const {
    while (handover.event < end.event &&
           recorder_.events(handover.event, handover.event + 1).front() < 0) {
      ++handover.event;
    }
    return handover;
  }

  void add_head(const Mark& border, const RecordedCall& last_call) {
    const ReleasedInHead released =
        released_in_head(recorder_, marks_, calls_, head_begin_.event, border.event);
    Mark end = head_begin_;  // the time of a part is the head's
    const auto add_part = [&](const SegmentKey& key, const Mark& until, const Moved& moved = {}) {
      add(key, -1, head_begin_, until, moved);
      take_out(released, head_begin_.event, observations_.back().sample.deltas);
      set_sums(observations_.back().sample);
    };
    if (recorder_.returned() >= last_return_ && recorder_.returned() <= border.event) {
      end.event = std::max(end.event, recorder_.returned());
      add_part(SegmentKey::until_return(calls_.size()), end);
      tell_both_ways(unread_, head_begin_, end);
    }
    add_part(step_key(SegmentKind::kHead), border, {0, -last_call.held_output_bytes});
    add_behind_holder(head_begin_, last_call, 0);
    tell_both_ways(unread_, head_begin_, border);
    tell_observations(released, calls_, observations_);
    if (released.events.empty()) return;
    end.event = released.events.back() + 1;
    add_part(SegmentKey::until_release(), end);
    add_behind_holder(head_begin_, last_call, 0);
    tell_both_ways(unread_, head_begin_, end);
  }

  // Of what several layers read, what was freed between these marks: taken out of the last layer's
  // segment, which lies there, where there is one. Returns its bytes, below zero.
  std::int64_t take_shared(bool has_segment, const Mark& begin, const Mark& end) {
    std::int64_t freed = 0;
    for (const std::int64_t event : step_.shared_frees) {
      if (event < begin.event || event >= end.event) continue;
      freed += recorder_.events(event, event + 1).front();
      if (!has_segment) continue;
      SegmentObservation& layer = observations_.back();
      const std::ptrdiff_t moved_in = layer.held_output_bytes != 0 ? 1 : 0;
      layer.sample.deltas[static_cast<std::size_t>(event - begin.event + moved_in)] = 0;
    }
    if (freed == 0 || !has_segment) return freed;
    std::erase(observations_.back().sample.deltas, 0);
    set_sums(observations_.back().sample);
    return freed;
  }

  // The recompute of layer i, if there was one.
  bool recomputes(std::size_t i) {
    const auto layer = static_cast<std::int32_t>(i);
    while (const Mark* begin = take(MarkKind::kRecomputeBegin, -1)) {
      const Mark* end = take(MarkKind::kRecomputeEnd, begin->layer);
      if (end == nullptr) return false;
      if (begin->layer == layer && !calls_[i].disturbed) {
        add(layer_key(SegmentKind::kRecompute, i), layer, *begin, *end);
      }
    }
    return true;
  }

  // False: the layer's backward tells nothing.
  bool finish_layer(std::size_t i, const Mark& begin, const Mark& end, std::int64_t last) {
    const RecordedCall& call = calls_[i];
    if (call.disturbed || call.on_trial) return false;
    const Mode::Kind kind = call.mode.kind;
    const bool recovers = kind == Mode::Kind::kSelective || kind == Mode::Kind::kOffload;
    if (recovers && !call.recovery.empty()) {
      // Recovery is spread over the backward: its time is known apart, its bytes are not.
      add({layer_key(SegmentKind::kRecompute, i), static_cast<std::int32_t>(i), {}}, call.recovery);
    }
    SegmentKey key = layer_key(SegmentKind::kBackward, i);
    key.variant |= accumulating_;
    add(key, static_cast<std::int32_t>(i), begin, end, {call.held_output_bytes, last});
    observations_.back().held_output_bytes = call.held_output_bytes;
    return true;
  }

  void add_empty_backward(std::size_t i) {
    if (calls_[i].disturbed || calls_[i].on_trial) return;
    SegmentKey key = layer_key(SegmentKind::kBackward, i);
    key.variant |= accumulating_;
    add({key, static_cast<std::int32_t>(i), {}}, {});
  }

  const Recorder& recorder_;
  const RecordedStep& step_;
  const std::vector<RecordedCall>& calls_;
  std::vector<Mark> marks_;
  std::uint8_t accumulating_;
  bool waited_;  // its forward was in an earlier step
  std::size_t next_ = 0;
  std::int64_t last_return_ = 0;  // events before the last layer's end
  std::int64_t head_end_ = 0;     // and before the mark behind it
  std::optional<Mark> handed_over_;
  Mark head_begin_;
  std::vector<Unread> unread_;  // of the layers so far
  std::vector<SegmentObservation> observations_;
  std::vector<WorkTime> times_;  // of each of them
};

}  // namespace

StepProfile build_profile(const Recorder& recorder, const RecordedStep& step) {
  return ProfileBuilder(recorder, step).build();
}

StepProfile build_waited_profile(const Recorder& recorder, const WaitedStep& waited) {
  return ProfileBuilder(recorder, waited.step, waited.steps_before).build();
}

}  // namespace pudica::hooks
