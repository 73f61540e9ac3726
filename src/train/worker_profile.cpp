#include "train/worker_profile.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "pudica/planner.h"
#include "pudica/step_learner.h"
#include "train/profiling_policy.h"

namespace pudica::train {
namespace {

Result<ShapeProfile> profile_shape(TrainingRun& run, ProfilingPolicy& policy, std::int64_t batch) {
  ShapeProfile profile;
  StepLearner learner(PredictorOptions{});
  for (const Mode mode : {Mode::full(), Mode::keep()}) {
    policy.mode = mode;
    run.step(batch);
    learner.observe(policy.outcome);
    const Bytes peak = policy.outcome.peak_bytes;
    (mode == Mode::keep() ? profile.keep_all_peak_bytes : profile.full_peak_bytes) = peak;
  }
  profile.base_bytes = policy.outcome.context.base_bytes;
  CostsRequest request;
  request.shape = policy.outcome.context.shape;
  auto model = learner.costs(policy.structure, request);
  if (!model) return model.error().with_context("profiling " + request.shape.to_string());
  profile.costs = std::move(model->point);
  return profile;
}

}  // namespace

Bytes ShapeProfile::menu_floor_bytes() const {
  ChainProblem problem = to_chain(costs);
  add_joints(costs, &problem);
  const std::int64_t chain = problem.offset_bytes + floor_plan(problem.chain).peak_bytes;
  return base_bytes + Bytes(std::max(chain, problem.constant_bytes));
}

std::map<ShapeKey, std::int64_t> distinct_shapes(const RunData& data) {
  std::map<ShapeKey, std::int64_t> shapes;
  for (std::size_t i = 0; i < data.batches.size(); ++i) {
    shapes.emplace(data.batches[i].shape, static_cast<std::int64_t>(i));
  }
  return shapes;
}

std::map<ShapeKey, std::int64_t> largest_shapes(const RunData& data) {
  const auto all = distinct_shapes(data);
  std::map<ShapeKey, std::int64_t> largest;
  for (const auto& [shape, batch] : all) {
    const bool covered = std::ranges::any_of(all, [&shape = shape](const auto& other) {
      return !(other.first == shape) && other.first.covers(shape);
    });
    if (!covered) largest.emplace(shape, batch);
  }
  return largest;
}

Result<std::map<ShapeKey, ShapeProfile>> profile_shapes(
    const TrainOptions& options, const RunData& data,
    const std::map<ShapeKey, std::int64_t>& shapes) {
  const auto policy = std::make_shared<ProfilingPolicy>();
  auto run = start_run(options, data, {policy, Bytes(0), Enforcement::kSoft});
  if (!run) return run.error();
  std::map<ShapeKey, ShapeProfile> profiles;
  // The first step is not counted: it makes the optimizer's state.
  if (!shapes.empty()) (*run)->step(shapes.begin()->second);
  for (const auto& [shape, batch] : shapes) {
    auto profile = profile_shape(**run, *policy, batch);
    if (!profile) return profile.error();
    profiles.emplace(shape, std::move(*profile));
  }
  return profiles;
}

}  // namespace pudica::train
