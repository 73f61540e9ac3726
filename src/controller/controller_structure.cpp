// The layers of a step: which structure is planned for, and what of it a step has run.
#include <algorithm>
#include <cmath>
#include <cstdint>
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

// Of the peak that was predicted for the layers planned for.
constexpr double kOtherPeak = 1e-3;

std::uint64_t dimensions_of_one(const ShapeKey& shape) {
  std::uint64_t ones = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) ones |= std::uint64_t{1} << i;
  }
  return ones;
}

bool extends(const std::vector<std::string>& names, const std::vector<std::string>& known) {
  return names.size() >= known.size() && std::equal(known.begin(), known.end(), names.begin());
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

void ControllerImpl::on_structure(const StepStructure& structure) {
  if (passing_ && *passing_ == structure) return;
  const bool stays = structure_.layers.empty() ||
                     std::ranges::equal(structure.layers, structure_.layers, is_same_layer);
  if (stays || !extends(structure.class_names, structure_.class_names)) {
    passing_.reset();
    adopt(structure);
    return;
  }
  const bool as_many = structure.layers.size() == structure_.layers.size();
  if (!as_many || share_classes(structure, structure_)) {
    take_parts(structure);
  } else {
    let_pass(structure);
  }
}

// Layers that are left out now and then are planned for all the same: what a plan for all of them
// needs is an upper bound for a step with fewer.
void ControllerImpl::take_parts(const StepStructure& structure) {
  const std::vector<std::uint16_t> merged = merged_order(order_of(structure_), order_of(structure));
  if (!are_alike(merged.size(), structure_.layers.size(), structure.layers.size())) {
    passing_.reset();
    adopt(structure);
    return;
  }
  StepStructure whole = structure;
  if (merged.size() > structure.layers.size()) {
    whole.layers = layers_of(merged);
    // Where in the whole those are is not told: none of such a class is taken to read the one
    // before.
    for (const StepStructure::Layer& part : structure.layers) {
      if (!part.apart) continue;
      for (StepStructure::Layer& layer : whole.layers) {
        layer.apart = layer.apart || layer.layer_class == part.layer_class;
      }
    }
  }
  if (whole.layers == structure_.layers) note_change();
  adopt(whole);
  passing_.reset();
  if (merged.size() > structure.layers.size()) let_pass(structure);
}

void ControllerImpl::let_pass(const StepStructure& structure) {
  passing_ = structure;
  passing_steps_ = 0;
}

// Layers of other classes may be one batch's own (one without padding has no mask): they become the
// structure to plan for when they come twice in a row. True: the step that ended was of such.
bool ControllerImpl::is_passing() {
  if (!passing_) return false;
  const bool fewer = passing_->layers.size() < structure_.layers.size();
  if (++passing_steps_ < (fewer ? kLeftOutPass : kOtherClassesPass)) return true;
  adopt(*std::exchange(passing_, std::nullopt));
  return true;
}

// A step that left layers out, its segments by the places of its layers in the structure.
StepOutcome ControllerImpl::placed(StepOutcome outcome) const {
  const std::vector<std::size_t> places = places_in(order_of(structure_), order_of(*passing_));
  const auto place = [&](std::size_t call) {
    return call < places.size() ? places[call] : structure_.layers.size();
  };
  for (SegmentObservation& item : outcome.segments) {
    if (item.layer >= 0) {
      item.layer = static_cast<std::int32_t>(place(static_cast<std::size_t>(item.layer)));
    }
    const bool epilogue = item.key.kind == SegmentKind::kEpilogue && item.key.layer_class > 0;
    if (item.key.kind == SegmentKind::kGap || epilogue) {
      item.key.layer_class = static_cast<std::uint16_t>(place(item.key.layer_class));
    }
  }
  return outcome;
}

bool ControllerImpl::is_restless() const {
  return changes_.size() == kRestlessChanges && step_ - changes_.front() <= kRestlessSteps;
}

// Operators differ where a dimension is 1, and so do the layers' classes: mostly in name alone.
void ControllerImpl::note_others(const StepOutcome& outcome) {
  const std::uint64_t ones = dimensions_of_one(outcome.context.shape);
  if (ones == 0 || outcome.plan == nullptr || !outcome.plan->predicts_peak()) return;
  const auto predicted = static_cast<double>(outcome.plan->predicted_peak_bytes.count());
  const double error = static_cast<double>(outcome.peak_bytes.count()) / predicted - 1;
  if (std::abs(error) > kOtherPeak) others_at_.insert(ones);
}

bool ControllerImpl::runs_others(const ShapeKey& shape) const {
  return !others_at_.empty() && others_at_.contains(dimensions_of_one(shape));
}

StepDecision ControllerImpl::without_prediction(StepDecision decision, const char* why) {
  if (decision.plan->predicted_peak_bytes <= Bytes(0)) return decision;
  Plan plan = *decision.plan;
  plan.id = next_plan_id_++;  // the cached one keeps its own
  pending_.plan_id = plan.id;
  plan.predicted_peak_bytes = Bytes(0);
  plan.revocable = true;
  plan.reason += std::string("; no peak is predicted: ") + why;
  decision.plan = std::make_shared<const Plan>(std::move(plan));
  return decision;
}

void ControllerImpl::note_change() {
  changes_.push_back(step_);
  if (changes_.size() > kRestlessChanges) changes_.pop_front();
}

void ControllerImpl::adopt(const StepStructure& structure) {
  if (structure == structure_) return;
  const bool same = std::ranges::equal(structure.layers, structure_.layers, is_same_layer);
  if (!structure_.layers.empty() && !same) {
    note_change();
    others_at_.clear();
  }
  const StepStructure old = std::exchange(structure_, structure);
  broken_ = false;
  take_menus(old);
  if (old.layers.empty()) return;
  if (same) keep_apart(old);
  if (same && extends(structure.class_names, old.class_names)) return;
  const std::size_t named = std::min(old.class_names.size(), structure.class_names.size());
  for (std::size_t i = 0; i < named; ++i) {
    if (old.class_names[i] != structure.class_names[i]) {
      store_.forget_class(static_cast<std::uint16_t>(i));
    }
  }
  const auto [before, after] = std::ranges::mismatch(old.layers, structure.layers);
  store_.forget_gaps_from(static_cast<std::size_t>(before - old.layers.begin()));
  plans_.clear();
  begin_learning();
  relearning_ = true;
}

// A layer that did not read the one before it once is not made one with it again.
void ControllerImpl::keep_apart(const StepStructure& old) {
  for (std::size_t i = 0; i < old.layers.size(); ++i) {
    structure_.layers[i].apart = structure_.layers[i].apart || old.layers[i].apart;
  }
  if (structure_.layers != old.layers) plans_.clear();
}

// A menu that changed makes its modes unknown, and the plans that use them void. One that is not
// found yet in this process is taken to be the one known.
void ControllerImpl::take_menus(const StepStructure& old) {
  for (std::size_t i = 0; i < std::max(old.menus.size(), structure_.menus.size()); ++i) {
    const StepStructure::Menu before = i < old.menus.size() ? old.menus[i] : StepStructure::Menu{};
    if (structure_.menus.size() <= i) structure_.menus.resize(i + 1);
    StepStructure::Menu& now = structure_.menus[i];
    if (now.id == 0) now = before;
    if (now.id == before.id) continue;
    store_.forget_selective(static_cast<std::uint16_t>(i));
    plans_.clear();
    menu_steps_ = 0;
  }
}

}  // namespace pudica
