#include "train/menu_profile.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/layer_order.h"
#include "pudica/step_learner.h"
#include "train/profiling_policy.h"
#include "train/spread_shapes.h"
#include "train/statistics.h"

namespace pudica::train {
namespace {

using Order = std::vector<std::uint16_t>;

// What was measured at one shape, one outcome a mode.
struct Measured {
  ShapeKey shape;
  StepStructure structure;
  std::vector<StepOutcome> outcomes;
};

// One outcome of several of the same mode: the last one's bytes, and of each segment the median of
// its seconds.
StepOutcome median_of(std::vector<StepOutcome> rounds) {
  std::map<std::pair<SegmentKey, std::int32_t>, std::vector<double>> seconds;
  for (const StepOutcome& round : rounds) {
    for (const SegmentObservation& item : round.segments) {
      if (item.sample.seconds > 0) seconds[{item.key, item.layer}].push_back(item.sample.seconds);
    }
  }
  StepOutcome out = std::move(rounds.back());
  for (SegmentObservation& item : out.segments) {
    if (const auto middle = median(seconds[{item.key, item.layer}])) item.sample.seconds = *middle;
  }
  return out;
}

class Profiler {
 public:
  Profiler(TrainingRun& run, ProfilingPolicy& policy, const MenuProfileOptions& options)
      : run_(run), policy_(policy), options_(options) {}

  // The optimizer's state and the menus are made in steps that do not count.
  void warm_up(std::int64_t batch) {
    constexpr int kMostSteps = 3;
    policy_.mode = Mode::keep();
    for (int step = 0; step < kMostSteps; ++step) {
      run_.step(batch);
      if (!policy_.wants_menus() || policy_.knows_menus()) return;
    }
  }

  void measure(const ShapeKey& shape, std::int64_t batch, bool whole_menu) {
    std::vector<Mode> modes{Mode::full(), Mode::keep()};
    std::vector<std::vector<StepOutcome>> rounds;
    for (int round = 0; round < (whole_menu ? kProfileRounds : 1); ++round) {
      for (std::size_t i = 0; i < modes.size(); ++i) {
        policy_.mode = modes[i];
        run_.step(batch);
        // The first step at a shape tells which classes run, and so which menus there are.
        if (whole_menu && round == 0 && i == 1) add_menu(modes);
        rounds.resize(modes.size());
        rounds[i].push_back(policy_.outcome);
      }
    }
    Measured measured{shape, policy_.structure, {}};
    for (auto& of_mode : rounds) measured.outcomes.push_back(median_of(std::move(of_mode)));
    measured_.push_back(std::move(measured));
  }

  // By shape. Shapes whose steps run the same layers teach each other.
  Result<std::map<ShapeKey, StepCosts>> costs(const std::map<ShapeKey, std::int64_t>& shapes) {
    std::map<Order, std::vector<const Measured*>> groups;
    for (const Measured& one : measured_) groups[order_of(one.structure)].push_back(&one);
    std::map<ShapeKey, StepCosts> out;
    const std::vector<const Measured*>* largest = nullptr;
    for (const auto& [order, group] : groups) {
      if (largest == nullptr || group.size() > largest->size()) largest = &group;
      const StepLearner learner = taught_by(group);
      for (const Measured* one : group) {
        if (auto done = add_costs(learner, one->structure, one->shape, out); !done) {
          return done.error();
        }
      }
    }
    if (largest == nullptr) return Error{ErrorCode::kUnavailable, "no step was measured"};
    const StepLearner learner = taught_by(*largest);
    for (const auto& [shape, batch] : shapes) {
      if (out.contains(shape)) continue;
      const auto done = add_costs(learner, largest->front()->structure, shape, out);
      if (!done) return done.error();
    }
    return out;
  }

 private:
  void add_menu(std::vector<Mode>& modes) const {
    std::size_t steps = 0;
    for (const StepStructure::Layer& layer : policy_.structure.layers) {
      steps = std::max(steps, policy_.steps_of(layer.layer_class));
    }
    for (std::size_t step = 0; step < steps && policy_.wants_menus(); ++step) {
      modes.push_back(Mode::selective(static_cast<std::uint16_t>(step)));
    }
    if (is_on_menu(options_.menu, Mode::Kind::kOffload)) modes.push_back(Mode::offload());
  }

  [[nodiscard]] StepLearner taught_by(const std::vector<const Measured*>& group) const {
    StepLearner learner(options_.predictor);
    for (const Measured* one : group) {
      for (const StepOutcome& outcome : one->outcomes) {
        learner.settle(outcome.context);
        learner.observe(outcome);
      }
    }
    if (!policy_.late.empty()) learner.observe_times(policy_.late);
    return learner;
  }

  Result<void> add_costs(const StepLearner& learner, const StepStructure& structure,
                         const ShapeKey& shape, std::map<ShapeKey, StepCosts>& out) const {
    CostsRequest request;
    request.shape = shape;
    request.menu = options_.menu;
    request.host_bytes = options_.offload.host_bytes.count();
    request.lenient = true;
    auto model = learner.costs(structure, request);
    if (!model) return model.error().with_context("profiling " + shape.to_string());
    out.emplace(shape, std::move(model->point));
    return {};
  }

  TrainingRun& run_;
  ProfilingPolicy& policy_;
  const MenuProfileOptions& options_;
  std::vector<Measured> measured_;
};

}  // namespace

Result<std::map<ShapeKey, StepCosts>> profile_menu(const TrainOptions& options, const RunData& data,
                                                   const std::map<ShapeKey, std::int64_t>& shapes,
                                                   const MenuProfileOptions& profile) {
  const auto policy =
      std::make_shared<ProfilingPolicy>(is_on_menu(profile.menu, Mode::Kind::kSelective));
  RunSetup setup;
  setup.policy = policy;
  setup.menu_rules = profile.menu_rules;
  setup.offload = profile.offload;
  auto run = start_run(options, data, setup);
  if (!run) return run.error();
  Profiler profiler(**run, *policy, profile);
  const auto measured = spread_shapes(shapes, kMostProfiledShapes);
  const auto with_menu = spread_shapes(measured, kShapesWithMenu);
  if (!measured.empty()) profiler.warm_up(measured.begin()->second);
  for (const auto& [shape, batch] : measured) {
    profiler.measure(shape, batch, with_menu.contains(shape));
  }
  return profiler.costs(shapes);
}

}  // namespace pudica::train
