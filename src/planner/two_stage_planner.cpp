// The planner behind planner.h: an incumbent, two tables around it, and a certificate.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "planner/candidates.h"
#include "planner/frontier.h"
#include "planner/joint_planner.h"
#include "planner/lp_certificate.h"
#include "planner/polish.h"
#include "planner/saturating.h"
#include "planner/scaling.h"
#include "planner/table.h"
#include "pudica/bytes.h"

namespace pudica {
namespace planner {
namespace {

std::string with_count(std::int64_t bytes) {
  return format_bytes(Bytes(bytes)) + " (" + std::to_string(bytes) + " bytes)";
}

Error over_budget(std::int64_t floor_bytes, std::int64_t available_bytes) {
  return Error{ErrorCode::kOverBudget,
               "no plan fits: the least that any plan needs is " + with_count(floor_bytes) +
                   ", available are " + with_count(available_bytes) + ", short of " +
                   with_count(saturating_subtract(floor_bytes, available_bytes))};
}

// Stage one plans on a coarse table over all times in reach, stage two on a finer one over the
// times up to the best plan known, whose cells are therefore smaller. A table's loss is less than
// a cell a layer.
class TwoStagePlanner final : public Planner {
 public:
  explicit TwoStagePlanner(const PlannerOptions& options) : options_(options) {}

  Result<ChainPlan> solve(const Chain& chain, std::int64_t available_bytes,
                          std::span<const std::uint8_t> warm) override;
  Result<std::vector<FrontierPoint>> frontier(const Chain& chain) override;

 private:
  // Takes trial_, polished, as the best plan if it fits and is faster than the best so far.
  void offer_trial();
  bool offer_warm(const Chain& chain, std::span<const std::uint8_t> warm);
  void run_table(std::int32_t wanted_cells);
  Result<ChainPlan> solve_with_joints(const Chain& chain, std::int64_t available_bytes);
  [[nodiscard]] ChainPlan finish(const Chain& chain) const;
  [[nodiscard]] bool proven() const { return bound_ns_ >= best_ns_; }

  PlannerOptions options_;
  Candidates candidates_;
  ScaledBytes bytes_;
  LpCertificate certificate_;
  Polish polish_;
  Table table_;
  FrontierPass frontier_;
  JointPlanner joints_;

  // Of the call in progress; times are over the fastest choice.
  std::int64_t budget_bytes_ = 0;
  Choice trial_;
  Choice best_;
  std::int64_t best_ns_ = 0;
  std::int64_t bound_ns_ = 0;
};

void TwoStagePlanner::offer_trial() {
  if (candidates_.totals(trial_).peak_bytes > budget_bytes_) return;
  polish_.run(candidates_, budget_bytes_, &trial_);
  const std::int64_t time_ns = candidates_.totals(trial_).time_ns;
  if (time_ns >= best_ns_) return;
  best_ns_ = time_ns;
  best_.swap(trial_);
}

bool TwoStagePlanner::offer_warm(const Chain& chain, std::span<const std::uint8_t> warm) {
  if (warm.empty() || warm.size() != candidates_.layers()) return false;
  trial_.resize(warm.size());
  for (std::size_t i = 0; i < warm.size(); ++i) {
    if (warm[i] >= chain.layers[i].size()) return false;
    trial_[i] = candidates_.candidate_for(i, chain.layers[i][warm[i]]);
  }
  if (candidates_.totals(trial_).peak_bytes > budget_bytes_) return false;
  offer_trial();
  return true;
}

void TwoStagePlanner::run_table(std::int32_t wanted_cells) {
  TimeCells cells;
  cells.set(candidates_.layers(), table_cells(candidates_.layers(), wanted_cells), best_ns_);
  table_.build(candidates_, bytes_, cells);
  // A plan of best_ns_ or less is in the table's range, so the bound holds against it.
  const std::int64_t bound = table_.lower_bound_ns(bytes_.optimistic_units(budget_bytes_));
  bound_ns_ = std::max(bound_ns_, std::min(bound, best_ns_));
  if (table_.plan(bytes_.safe_units(budget_bytes_), &trial_)) offer_trial();
}

ChainPlan TwoStagePlanner::finish(const Chain& chain) const {
  Choice sources = best_;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sources[i] = candidates_.of(i)[sources[i]].source;
  }
  ChainPlan plan = evaluate(chain, sources);
  if (plan.peak_bytes > budget_bytes_) throw BugError("planner: the plan does not fit");
  plan.lower_bound_ns = saturating_add(candidates_.fastest_ns(), std::min(bound_ns_, best_ns_));
  return plan;
}

Result<ChainPlan> TwoStagePlanner::solve(const Chain& chain, std::int64_t available_bytes,
                                         std::span<const std::uint8_t> warm) {
  if (auto collected = candidates_.collect(chain); !collected) return collected.error();
  const std::int64_t floor_bytes = candidates_.floors()[0];
  if (floor_bytes > available_bytes) {
    if (chain.joints.empty()) return over_budget(floor_bytes, available_bytes);
    return solve_with_joints(chain, available_bytes);
  }
  budget_bytes_ = available_bytes;
  bound_ns_ = 0;
  best_.assign(candidates_.layers(), 0);
  best_ns_ = 0;
  if (candidates_.totals(best_).peak_bytes <= budget_bytes_) return finish(chain);

  // Something that fits in exact bytes comes first: the tables round bytes up, and near the floor
  // may find nothing.
  fastest_first(candidates_, budget_bytes_, &best_);
  polish_.run(candidates_, budget_bytes_, &best_);
  best_ns_ = candidates_.totals(best_).time_ns;
  bound_ns_ = certificate_.bound_ns(candidates_, budget_bytes_);
  certificate_.round(candidates_, budget_bytes_, &trial_);
  offer_trial();
  const bool warm_fits = offer_warm(chain, warm);
  if (proven()) return finish(chain);

  bytes_.scale(candidates_);
  if (!warm_fits) run_table(options_.first_cells);
  if (!proven()) run_table(options_.second_cells);
  return finish(chain);
}

Result<ChainPlan> TwoStagePlanner::solve_with_joints(const Chain& chain,
                                                     std::int64_t available_bytes) {
  const std::int64_t floor_bytes = joints_.floor_bytes(chain, candidates_);
  if (floor_bytes > available_bytes) {
    return over_budget(std::min(floor_bytes, candidates_.floors()[0]), available_bytes);
  }
  auto plan = joints_.solve(chain, candidates_, available_bytes);
  if (!plan) throw BugError("planner: a floor of joint segments that does not fit");
  return std::move(*plan);
}

Result<std::vector<FrontierPoint>> TwoStagePlanner::frontier(const Chain& chain) {
  if (auto collected = candidates_.collect(chain); !collected) return collected.error();
  bytes_.scale(candidates_);
  TimeCells cells;
  cells.set(candidates_.layers(), table_cells(candidates_.layers(), options_.frontier_cells),
            candidates_.slowest_ns());
  std::vector<FrontierPoint> points = frontier_.run(candidates_, bytes_, cells);
  if (chain.joints.empty()) return points;
  const FrontierPoint floor = points.front();
  if (!joints_.solve(chain, candidates_, floor.peak_bytes - 1)) return points;
  std::vector<FrontierPoint> all = joints_.points_below(floor.peak_bytes);
  // A joint segment may be below the floor in time as well.
  const std::int64_t fastest = all.back().time_ns;
  std::erase_if(points, [fastest](const FrontierPoint& p) { return p.time_ns >= fastest; });
  all.insert(all.end(), points.begin(), points.end());
  return all;
}

}  // namespace
}  // namespace planner

std::unique_ptr<Planner> make_planner(const PlannerOptions& options) {
  return std::make_unique<planner::TwoStagePlanner>(options);
}

}  // namespace pudica
