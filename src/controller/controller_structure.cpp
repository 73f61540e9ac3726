// The layers of a step: which structure is planned for, and what of it a step has run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/layer_order.h"
#include "controller/controller_impl.h"

namespace pudica {
namespace {

// So many changes of the layers within so many steps: they change from step to step.
constexpr std::size_t kRestlessChanges = 2;
constexpr std::uint64_t kRestlessSteps = 24;

// Steps in a row with the same layers, other than planned for, until these are planned for: with
// layers of other classes, and with layers left out, which chance may leave out again.
constexpr int kOtherClassesPass = 2;
constexpr int kLeftOutPass = 4;

bool extends(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  return names.size() >= known.size() && std::equal(known.begin(), known.end(), names.begin());
}

// What both name has the same name. A process that has not run them all yet knows fewer.
bool agree(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  return extends(names, known) || extends(known, names);
}

// Two steps that differ in more are not the same layers with some of them left out.
bool are_alike(std::size_t merged, std::size_t left, std::size_t right) {
  const std::size_t longer = std::max(left, right);
  return left > 0 && right > 0 && merged <= longer + std::max<std::size_t>(2, longer / 4);
}

std::set<std::uint16_t> classes_of(const StepStructure& structure) {
  std::set<std::uint16_t> classes;
  for (const StepStructure::Layer& layer : structure.layers) classes.insert(layer.layer_class);
  return classes;
}

bool is_same_layer(const StepStructure::Layer& left, const StepStructure::Layer& right) {
  return left.layer_class == right.layer_class && left.variant == right.variant;
}

// All classes of the one are among the other's.
bool share_classes(const StepStructure& left, const StepStructure& right) {
  const std::set<std::uint16_t> a = classes_of(left);
  const std::set<std::uint16_t> b = classes_of(right);
  return std::ranges::includes(a, b) || std::ranges::includes(b, a);
}

}  // namespace

// That of the very same layers; else one that begins with a layer of the same class, whose layers
// some are left out of or some came to. As many of other classes are another kind, as long as
// there is room for more.
StepKind& ControllerImpl::kind_of(const StepStructure& structure) {
  if (structure.layers.empty()) return *kind_;
  for (const auto& kind : kinds_) {
    if (std::ranges::equal(structure.layers, kind->structure.layers, is_same_layer)) return *kind;
  }
  const std::uint16_t first_class = structure.layers[0].layer_class;
  const bool expected =
      !kind_->structure.layers.empty() && kind_->structure.layers[0].layer_class == first_class;
  StepKind* const alike = expected ? kind_ : kinds_.of_first(first_class, {});
  if (alike == nullptr) return fresh_kind();
  const StepStructure& known = alike->structure;
  const bool others = structure.layers.size() == known.layers.size() &&
                      agree(structure.class_names, known.class_names) &&
                      !share_classes(structure, known);
  return others && kinds_.has_room() ? fresh_kind() : *alike;
}

StepKind& ControllerImpl::fresh_kind() {
  bool given_up = false;
  StepKind& kind = kinds_.fresh(*told_, given_up);
  if (given_up) {
    learner_.forget_kind(kind.number);
    waiting_->forget(ForwardKind{this, kind.number});
  }
  return kind;
}

// Its classes are another model's.
void ControllerImpl::forget_kinds() {
  for (const auto& kind : kinds_) {
    if (kind->number > 0) learner_.forget_kind(kind->number);
  }
  StepStructure known = kinds_[0].structure;
  known.class_names = told_->structure.class_names;
  kinds_.restore({std::move(known)});
  waiting_->forget(this);
  first_apart_.clear();
  kind_ = told_ = &kinds_[0];
}

void ControllerImpl::set_first_apart(StepStructure& structure) const {
  if (structure.layers.empty() || !first_apart_.contains(structure.layers[0].layer_class)) return;
  structure.layers[0].variant |= SegmentKey::kFirstOfClass;
}

// The first layer of a step comes last in the backward: what its siblings add to a gradient that is
// there already, it makes. Where that shows within a step it is learned apart from then on.
void ControllerImpl::learn_first_apart(const StepOutcome& outcome) {
  for (const SegmentObservation& first : outcome.segments) {
    if (first.layer != 0 || first.key.kind != SegmentKind::kBackward) continue;
    const std::uint16_t layer_class = first.key.layer_class;
    const auto differs = [&first](const SegmentObservation& other) {
      return other.key == first.key && other.layer != 0 &&
             std::abs(other.sample.net_bytes - first.sample.net_bytes) > kNoticeableBytes;
    };
    if (first_apart_.contains(layer_class) || std::ranges::none_of(outcome.segments, differs)) {
      continue;
    }
    first_apart_.insert(layer_class);
    learner_.forget_backwards(layer_class);
    for (const auto& kind : kinds_) {
      set_first_apart(kind->structure);
      if (kind->passing) set_first_apart(*kind->passing);
    }
    clear_plans();
  }
}

void ControllerImpl::on_structure(const StepStructure& told) {
  latest_ = told;
  if (told.layers.size() > SegmentKey::kMostLayers) {
    stand_down("a step of " + std::to_string(told.layers.size()) +
               " layer calls, expected at most " + std::to_string(SegmentKey::kMostLayers));
    return;
  }
  StepStructure structure = told;
  set_first_apart(structure);
  if (!agree(structure.class_names, told_->structure.class_names)) forget_kinds();
  kind_ = told_ = &kind_of(structure);
  if (kind_->passing && *kind_->passing == structure) return;
  const bool stays = kind_->structure.layers.empty() ||
                     std::ranges::equal(structure.layers, kind_->structure.layers, is_same_layer);
  if (stays || !agree(structure.class_names, kind_->structure.class_names)) {
    kind_->passing.reset();
    adopt(structure);
    return;
  }
  const bool as_many = structure.layers.size() == kind_->structure.layers.size();
  if (!as_many || share_classes(structure, kind_->structure)) {
    take_parts(structure);
  } else {
    let_pass(structure);
  }
}

// Layers that are left out now and then are planned for all the same: what a plan for all of them
// needs is an upper bound for a step with fewer.
void ControllerImpl::take_parts(const StepStructure& structure) {
  const std::vector<std::uint16_t> merged =
      merged_order(order_of(kind_->structure), order_of(structure));
  if (!are_alike(merged.size(), kind_->structure.layers.size(), structure.layers.size())) {
    kind_->passing.reset();
    adopt(structure);
    return;
  }
  StepStructure whole = structure;
  if (merged.size() > structure.layers.size()) {
    whole.layers = layers_of(merged);
    set_first_apart(whole);
    // Where in the whole those are is not told: none of such a class is taken to read the one
    // before.
    for (const StepStructure::Layer& part : structure.layers) {
      if (!part.apart) continue;
      for (StepStructure::Layer& layer : whole.layers) {
        layer.apart = layer.apart || layer.layer_class == part.layer_class;
      }
    }
  }
  if (whole.layers == kind_->structure.layers) note_change();
  adopt(whole);
  kind_->passing.reset();
  if (merged.size() > structure.layers.size()) let_pass(structure);
}

void ControllerImpl::let_pass(const StepStructure& structure) {
  kind_->passing = structure;
  kind_->passing_steps = 0;
}

// Layers of other classes may be one batch's own (one without padding has no mask): they become the
// structure to plan for when they come twice in a row. True: the step that ended was of such.
bool ControllerImpl::is_passing() {
  if (!kind_->passing) return false;
  const bool fewer = kind_->passing->layers.size() < kind_->structure.layers.size();
  if (++kind_->passing_steps < (fewer ? kLeftOutPass : kOtherClassesPass)) return true;
  adopt(*std::exchange(kind_->passing, std::nullopt));
  kind_->settled = fewer;
  return true;
}

// The step as its kind knows it: its segments by the places of its layers in the structure.
StepOutcome ControllerImpl::placed(StepOutcome outcome, const StepKind& kind) const {
  for (SegmentObservation& item : outcome.segments) {
    item.key = item.key.in_kind(kind.number);
    const bool first = item.layer == 0 && !item.key.is_of_kind();
    if (first && first_apart_.contains(item.key.layer_class)) {
      item.key.variant |= SegmentKey::kFirstOfClass;
    }
  }
  if (!kind.passing || kind.passing->layers.size() >= kind.structure.layers.size()) {
    return outcome;
  }
  const std::vector<std::size_t> places =
      places_in(order_of(kind.structure), order_of(*kind.passing));
  const auto place = [&](std::size_t call) {
    return call < places.size() ? places[call] : kind.structure.layers.size();
  };
  for (SegmentObservation& item : outcome.segments) {
    if (item.layer >= 0) {
      item.layer = static_cast<std::int32_t>(place(static_cast<std::size_t>(item.layer)));
    }
    const bool epilogue = item.key.kind == SegmentKind::kEpilogue && item.key.place() > 0;
    if (item.key.place() > SegmentKey::kMostLayers) continue;
    if (item.key.kind == SegmentKind::kGap || epilogue) {
      const std::size_t at = place(item.key.place());
      item.key.layer_class = static_cast<std::uint16_t>(at);
      item.key = item.key.in_kind(kind.number);
    }
  }
  return outcome;
}

bool ControllerImpl::is_restless() const {
  return kind_->changes.size() == kRestlessChanges &&
         step_ - kind_->changes.front() <= kRestlessSteps;
}

// The same plan, but that it can be taken back, and what `change` does.
StepDecision ControllerImpl::reissued(StepDecision decision, const std::string& why,
                                      const std::function<void(Plan&)>& change) {
  Plan plan = *decision.plan;
  plan.id = next_plan_id_++;  // the cached one keeps its own
  pending_.plan_id = plan.id;
  plan.revocable = true;
  change(plan);
  plan.reason += "; " + why;
  decision.plan = std::make_shared<const Plan>(std::move(plan));
  return decision;
}

StepDecision ControllerImpl::revocably(StepDecision decision, const char* why) {
  if (decision.plan->revocable) return decision;
  return reissued(std::move(decision), why, [](Plan&) {});
}

StepDecision ControllerImpl::without_prediction(StepDecision decision, const char* why) {
  if (decision.plan->predicted_peak_bytes <= Bytes(0)) return decision;
  return reissued(std::move(decision), std::string("no peak is predicted: ") + why,
                  [](Plan& plan) { plan.predicted_peak_bytes = Bytes(0); });
}

void ControllerImpl::note_change() {
  kind_->settled = false;
  kind_->changes.push_back(step_);
  if (kind_->changes.size() > kRestlessChanges) kind_->changes.pop_front();
}

void ControllerImpl::adopt(const StepStructure& structure) {
  if (structure == kind_->structure) return;
  const bool same = std::ranges::equal(structure.layers, kind_->structure.layers, is_same_layer);
  if (!kind_->structure.layers.empty() && !same) {
    note_change();
  }
  const StepStructure old = std::exchange(kind_->structure, structure);
  broken_ = false;
  take_menus(old);
  if (old.layers.empty()) return;
  if (same) keep_apart(old);
  if (same && extends(structure.class_names, old.class_names)) return;
  const std::size_t named = std::min(old.class_names.size(), structure.class_names.size());
  for (std::size_t i = 0; i < named; ++i) {
    if (old.class_names[i] != structure.class_names[i]) {
      learner_.forget_class(static_cast<std::uint16_t>(i));
    }
  }
  const auto [before, after] = std::ranges::mismatch(old.layers, structure.layers);
  learner_.forget_gaps_from(kind_->number, static_cast<std::size_t>(before - old.layers.begin()));
  kind_->plans.clear();
  kind_->begin_learning();
  kind_->relearning = true;
}

// A layer that did not read the one before it once is not made one with it again.
void ControllerImpl::keep_apart(const StepStructure& old) {
  for (std::size_t i = 0; i < old.layers.size(); ++i) {
    kind_->structure.layers[i].apart = kind_->structure.layers[i].apart || old.layers[i].apart;
  }
  if (kind_->structure.layers != old.layers) kind_->plans.clear();
}

// A menu that changed makes its modes unknown, and the plans that use them void. One that is not
// found yet in this process is taken to be the one known.
void ControllerImpl::take_menus(const StepStructure& old) {
  const std::set<std::uint16_t> own = classes_of(kind_->structure);
  for (std::size_t i = 0; i < std::max(old.menus.size(), kind_->structure.menus.size()); ++i) {
    const StepStructure::Menu before = i < old.menus.size() ? old.menus[i] : StepStructure::Menu{};
    if (kind_->structure.menus.size() <= i) kind_->structure.menus.resize(i + 1);
    StepStructure::Menu& now = kind_->structure.menus[i];
    if (now.id == 0) now = before;
    if (!own.contains(static_cast<std::uint16_t>(i))) continue;
    if (now.not_at != before.not_at) kind_->plans.clear();
    if (now.id == before.id) continue;
    learner_.forget_selective(static_cast<std::uint16_t>(i));
    kind_->plans.clear();
    kind_->menu = {};
  }
}

}  // namespace pudica
