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
#include "planner/proof.h"
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

// A gap that the first search leaves this many times what is good enough is rare, and worth a
// second of so many times the states.
constexpr std::int64_t kLooseGaps = 5;
constexpr std::int32_t kMoreStates = 16;

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
  void prove(const Chain& chain);
  Result<ChainPlan> solve_with_joints(const Chain& chain, std::int64_t available_bytes);
  [[nodiscard]] ChainPlan finish(const Chain& chain) const;
  [[nodiscard]] bool proven() const { return best_.bound_ns >= best_.time_ns; }

  PlannerOptions options_;
  Candidates candidates_;
  ScaledBytes bytes_;
  LpCertificate certificate_;
  Polish polish_;
  Table table_;
  FrontierPass frontier_;
  JointPlanner joints_;
  Proof proof_;

  // Of the call in progress; times are over the fastest choice.
  std::int64_t budget_bytes_ = 0;
  Choice trial_;
  Incumbent best_;
};

void TwoStagePlanner::offer_trial() {
  if (candidates_.totals(trial_).peak_bytes > budget_bytes_) return;
  polish_.run(candidates_, budget_bytes_, &trial_);
  const std::int64_t time_ns = candidates_.totals(trial_).time_ns;
  if (time_ns >= best_.time_ns) return;
  best_.time_ns = time_ns;
  best_.choice.swap(trial_);
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
  cells.set(candidates_.layers(), table_cells(candidates_.layers(), wanted_cells), best_.time_ns);
  table_.build(candidates_, bytes_, cells);
  // A plan of best_.time_ns or less is in the table's range, so the bound holds against it.
  const std::int64_t bound = table_.lower_bound_ns(bytes_.optimistic_units(budget_bytes_));
  best_.bound_ns = std::max(best_.bound_ns, std::min(bound, best_.time_ns));
  if (table_.plan(bytes_.safe_units(budget_bytes_), &trial_)) offer_trial();
}

void TwoStagePlanner::prove(const Chain& chain) {
  const double step_ns = chain.step_ns > 0 ? static_cast<double>(chain.step_ns)
                                           : 3.0 * static_cast<double>(candidates_.slowest_ns());
  const auto enough_ns = static_cast<std::int64_t>(options_.good_enough_gap * step_ns);
  if (options_.proof_states <= 0 || best_.time_ns - best_.bound_ns <= enough_ns) return;
  certificate_.prepare_rest(candidates_, budget_bytes_);
  ProofOptions proof{
      .budget_bytes = budget_bytes_, .good_enough_ns = enough_ns, .states = options_.proof_states};
  proof_.run(candidates_, certificate_, table_, proof, &best_);
  if (best_.time_ns - best_.bound_ns <= kLooseGaps * enough_ns) return;
  proof.states *= kMoreStates;
  proof_.run(candidates_, certificate_, table_, proof, &best_);
}

ChainPlan TwoStagePlanner::finish(const Chain& chain) const {
  Choice sources = best_.choice;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sources[i] = candidates_.of(i)[sources[i]].source;
  }
  ChainPlan plan = evaluate(chain, sources);
  if (plan.peak_bytes > budget_bytes_) throw BugError("planner: the plan does not fit");
  plan.lower_bound_ns =
      saturating_add(candidates_.fastest_ns(), std::min(best_.bound_ns, best_.time_ns));
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
  best_.bound_ns = 0;
  best_.choice.assign(candidates_.layers(), 0);
  best_.time_ns = 0;
  if (candidates_.totals(best_.choice).peak_bytes <= budget_bytes_) return finish(chain);

  // Something that fits in exact bytes comes first: the tables round bytes up, and near the floor
  // may find nothing.
  fastest_first(candidates_, budget_bytes_, &best_.choice);
  polish_.run(candidates_, budget_bytes_, &best_.choice);
  best_.time_ns = candidates_.totals(best_.choice).time_ns;
  best_.bound_ns = certificate_.bound_ns(candidates_, budget_bytes_);
  certificate_.round(candidates_, budget_bytes_, &trial_);
  offer_trial();
  const bool warm_fits = offer_warm(chain, warm);
  if (proven()) return finish(chain);

  bytes_.scale(candidates_);
  if (!warm_fits) run_table(options_.first_cells);
  if (!proven()) run_table(options_.second_cells);
  if (!proven()) prove(chain);
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
