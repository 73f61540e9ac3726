// StepKinds: the kinds of steps that a run has, and what is known of each alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "controller/kinds_by_shape.h"
#include "controller/known_peaks.h"
#include "controller/measured_shapes.h"
#include "controller/menu_course.h"
#include "controller/phase.h"
#include "controller/spared_bytes.h"
#include "controller/tight_shapes.h"
#include "plan_cache/plan_store.h"
#include "pudica/policy.h"

namespace pudica {

// Shapes, bounded: the smallest goes first.
class ShapeSet {
 public:
  [[nodiscard]] bool contains(const ShapeKey& key) const { return members_.contains(key); }
  [[nodiscard]] bool empty() const { return members_.empty(); }
  void insert(const ShapeKey& key) {
    if (members_.size() >= kCapacity) members_.erase(members_.begin());
    members_.insert(key);
  }
  void erase(const ShapeKey& key) { members_.erase(key); }
  void clear() { members_.clear(); }

 private:
  static constexpr std::size_t kCapacity = 512;
  std::set<ShapeKey> members_;
};

// Whether steps usually go back through their layers more than once: what such steps need says
// nothing of a plan, and cannot be cut into segments.
class RepeatedBackwards {
 public:
  void note(bool repeated) {
    excess_ = std::clamp(excess_ + (repeated ? 1 : -1), 0, kMost);
    if (excess_ >= kUsual) usual_ = true;
    if (excess_ == 0) usual_ = false;
  }
  [[nodiscard]] bool are_usual() const { return usual_; }

 private:
  static constexpr int kUsual = 4;
  static constexpr int kMost = 8;

  int excess_ = 0;  // of steps that do over those that do not, as far as it is remembered
  bool usual_ = false;
};

// Steps over layers of the same classes: the layers that are planned for, how far they are learned,
// and what was seen of such steps as a whole. What is known of a layer is its class's, whichever
// kind of step runs it; what stands between layers is a kind's own (SegmentKey::in_kind).
struct StepKind {
  StepKind(std::uint8_t its_number, PlanStore its_plans, double fit_error,
           const PredictorOptions& predictor)
      : number(its_number), plans(std::move(its_plans)), spared(predictor), drift(fit_error) {}

  // Learns from the beginning; what is known stays known.
  void begin_learning() {
    learning_steps = 0;
    curious_steps = 0;
    inexact_steps = 0;
    learning_was_revoked = false;
    to_record.clear();
    recorded_again.clear();
  }

  // What was learned is no longer true.
  void forget() {
    plans.clear();
    known_peaks.clear();
    spared.clear();
    drift.reset();
    recorded_steps = 0;
    doubtful_steps = 0;
    menu.measured_to.clear();
    measured.clear();
    judge_drift = false;
    relearning = false;
    repeated_backwards = {};
    begin_learning();
  }

  std::uint8_t number;
  StepStructure structure;
  std::optional<StepStructure> passing;  // of the latest steps, other than `structure`
  int passing_steps = 0;
  std::deque<std::uint64_t> changes;  // steps in which the structure changed, the latest ones
  bool settled = false;               // since then the layers were the same several times in a row

  PlanStore plans;
  KnownPeaks known_peaks;
  SparedBytes spared;
  TightShapes tight_shapes;
  DriftDetector drift;

  std::int64_t recorded_steps = 0;  // that taught something
  MeasuredShapes measured;          // in those
  std::int64_t learning_steps = 0;  // since learning last began
  std::int64_t curious_steps = 0;   // recorded while planning, since learning last began
  std::int64_t inexact_steps = 0;   // since then, whose peak was not the predicted one
  RepeatedBackwards repeated_backwards;
  MenuCourse menu;                    // since it appeared
  bool relearning = false;            // a drift or a new structure: record before planning again
  bool told_stand_down = false;       // in the log
  std::int32_t doubtful_steps = 0;    // recorded steps whose misfits are drift: forgotten
  bool learning_was_revoked = false;  // in the last step that taught
  bool judge_drift = false;           // the next recorded step tells whether the drift was real
  ShapeSet to_record;                 // when they appear next
  ShapeSet recorded_again;            // recorded for a misfit before
};

// Never empty. Which kind a step is of shows in its first layer; until then it is expected to be of
// the kind that its regime had last: batches with a dimension of 1 run other operators, and layers
// of other classes then. Kinds that begin alike are told apart by the shape (KindsByShape). Where
// all numbers are taken the kind that was not run for the longest is given up. Not thread-safe: one
// owner thread.
class StepKinds {
 public:
  using Factory = std::function<std::unique_ptr<StepKind>(std::uint8_t number)>;

  explicit StepKinds(Factory factory) : factory_(std::move(factory)) { renew(0); }

  [[nodiscard]] StepKind& expected(const ShapeKey& shape) const {
    const auto known = of_regime_.find(regime_of(shape));
    return alike(*kinds_[known == of_regime_.end() ? latest_ : known->second], shape);
  }
  // The kind of a step of that shape whose first layer is of this class: one that begins so, else
  // one that runs such a layer later (its first may have been left out); null: none does.
  [[nodiscard]] StepKind* of_first(std::uint16_t layer_class, const ShapeKey& shape) const {
    StepKind* later = nullptr;
    for (const auto& kind : kinds_) {
      const auto& layers = kind->structure.layers;
      const auto found = std::ranges::find(layers, layer_class, &StepStructure::Layer::layer_class);
      if (found == layers.end()) continue;
      if (found == layers.begin()) return &alike(*kind, shape);
      if (later == nullptr) later = kind.get();
    }
    return later;
  }
  [[nodiscard]] bool has_room() const { return kinds_.size() < kMost; }
  // One without layers; `given_up`: its number was another kind's, never that of `spared`.
  StepKind& fresh(const StepKind& spared, bool& given_up) {
    given_up = false;
    for (const auto& kind : kinds_) {
      if (kind->structure.layers.empty()) return *kind;
    }
    if (has_room()) return renew(kinds_.size());
    given_up = true;
    std::size_t number = spared.number == 0 ? 1 : 0;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      if (i != spared.number && ran_at_[i] < ran_at_[number]) number = i;
    }
    std::erase_if(of_regime_, [number](const auto& known) { return known.second == number; });
    by_shape_.forget(number);
    return renew(number);
  }
  // A step of the kind has ended.
  void ran(const StepKind& kind, const ShapeKey& shape, std::uint64_t step) {
    latest_ = kind.number;
    ran_at_[latest_] = step;
    of_regime_[regime_of(shape)] = latest_;
    const auto before = by_shape_.known(shape);
    if (before && *before != latest_ && begin_alike(*kinds_[*before], kind)) torn_.insert(shape);
    by_shape_.note(shape, latest_);
  }
  // Begun anew, with kinds of these layers.
  void restore(std::vector<StepStructure> structures) {
    kinds_.clear();
    ran_at_.clear();
    of_regime_.clear();
    by_shape_.clear();
    torn_.clear();
    latest_ = 0;
    for (std::size_t i = 0; i < std::clamp<std::size_t>(structures.size(), 1, kMost); ++i) {
      renew(i);
      if (i < structures.size()) kinds_[i]->structure = std::move(structures[i]);
    }
  }

  // Steps of that very shape were of several kinds that begin alike: nothing tells which comes.
  [[nodiscard]] bool is_torn(const ShapeKey& shape) const { return torn_.contains(shape); }
  // Whether a step's first layer says something that its shape does not.
  [[nodiscard]] bool begin_differently() const {
    return std::ranges::any_of(kinds_, [this](const auto& kind) {
      return kind != kinds_[0] && !begin_alike(*kind, *kinds_[0]);
    });
  }
  [[nodiscard]] std::size_t size() const { return kinds_.size(); }
  [[nodiscard]] StepKind& operator[](std::size_t number) const { return *kinds_[number]; }
  [[nodiscard]] auto begin() const { return kinds_.begin(); }
  [[nodiscard]] auto end() const { return kinds_.end(); }

  static constexpr std::size_t kMost = SegmentKey::kMostKinds;

 private:
  // Which dimensions are 1, in bits.
  static std::uint64_t regime_of(const ShapeKey& shape) {
    std::uint64_t ones = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 1) ones |= std::uint64_t{1} << i;
    }
    return ones;
  }

  static bool begin_alike(const StepKind& left, const StepKind& right) {
    const auto& a = left.structure.layers;
    const auto& b = right.structure.layers;
    return !a.empty() && !b.empty() && a[0].layer_class == b[0].layer_class;
  }

  // Of the kinds that begin as this one does, the one of the shape.
  [[nodiscard]] StepKind& alike(StepKind& kind, const ShapeKey& shape) const {
    const auto is_alike = [&](const auto& other) { return begin_alike(*other, kind); };
    if (std::ranges::count_if(kinds_, is_alike) < 2) return kind;
    const auto may_be = [&](std::size_t number) { return is_alike(kinds_[number]); };
    return *kinds_[by_shape_.of(shape, may_be).value_or(kind.number)];
  }

  StepKind& renew(std::size_t number) {
    if (number == kinds_.size()) {
      kinds_.emplace_back();
      ran_at_.push_back(0);
    }
    kinds_[number] = factory_(static_cast<std::uint8_t>(number));
    return *kinds_[number];
  }

  Factory factory_;
  std::vector<std::unique_ptr<StepKind>> kinds_;  // by number
  std::vector<std::uint64_t> ran_at_;             // the step, by number
  std::map<std::uint64_t, std::size_t> of_regime_;
  KindsByShape by_shape_;
  ShapeSet torn_;
  std::size_t latest_ = 0;
};

}  // namespace pudica
