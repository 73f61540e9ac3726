#include "planner/joint_planner.h"

#include <algorithm>
#include <limits>

#include "planner/saturating.h"

namespace pudica::planner {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// What cells turn away adds up over the layers.
std::size_t cells_for(std::size_t layers) {
  return std::clamp<std::size_t>(16 * layers, 256, 1024);
}

}  // namespace

void JointPlanner::load_steps(const Chain& chain, const Candidates& candidates, std::size_t layer) {
  steps_.clear();
  for (const Candidate& mode : candidates.of(layer)) {
    steps_.push_back({chain.layers[layer][mode.source], mode.source, 1});
  }
  if (layer >= chain.joints.size()) return;
  for (const ChainJoint& joint : chain.joints[layer]) {
    if (joint.length < 2 || joint.length > chain.layers.size() - layer) {
      throw BugError("chain: a joint segment of no possible length");
    }
    steps_.push_back({joint.as_one, 0, static_cast<std::uint8_t>(joint.length)});
  }
}

std::int64_t JointPlanner::floor_bytes(const Chain& chain, const Candidates& candidates) {
  std::vector<std::int64_t> least(candidates.layers() + 1, candidates.tail_bytes());
  for (std::size_t i = candidates.layers(); i-- > 0;) {
    load_steps(chain, candidates, i);
    least[i] = kMost;
    for (const Step& step : steps_) {
      const std::int64_t behind = saturating_add(step.mode.kept_bytes, least[i + step.length]);
      least[i] = std::min(least[i], std::max(step.mode.peak_bytes, behind));
    }
  }
  return least[0];
}

// Layers before i hold at least the least S_{i-1}.
void JointPlanner::compute_rooms(const Chain& chain, const Candidates& candidates,
                                 std::int64_t budget_bytes) {
  const std::size_t layers = candidates.layers();
  std::vector<std::int64_t> least_held(layers + 1, kMost);
  least_held[0] = 0;
  for (std::size_t i = 0; i < layers; ++i) {
    load_steps(chain, candidates, i);
    for (const Step& step : steps_) {
      std::int64_t& behind = least_held[i + step.length];
      behind = std::min(behind, saturating_add(least_held[i], step.mode.kept_bytes));
    }
  }
  rooms_.resize(layers + 1);
  for (std::size_t i = 0; i <= layers; ++i) {
    rooms_[i] = saturating_subtract(budget_bytes, least_held[i]);
  }
}

template <typename Take>
void JointPlanner::for_each_plan(std::size_t layer, Take&& take) const {
  for (const Step& step : steps_) {
    if (step.mode.peak_bytes > rooms_[layer]) continue;
    const std::vector<Point>& behind = lists_[layer + step.length];
    // Of those that stay below this layer's own peak, the last is the fastest.
    const auto above = std::ranges::partition_point(behind, [&step](const Point& point) {
      return saturating_add(step.mode.kept_bytes, point.bytes) <= step.mode.peak_bytes;
    });
    for (auto point = above == behind.begin() ? above : above - 1; point != behind.end(); ++point) {
      const std::int64_t bytes =
          std::max(step.mode.peak_bytes, saturating_add(step.mode.kept_bytes, point->bytes));
      if (bytes > rooms_[layer]) break;
      take(Point{bytes, saturating_add(step.mode.time_ns, point->time_ns),
                 saturating_add(step.mode.time_ns, point->bound_ns),
                 static_cast<std::uint32_t>(point - behind.begin()), step.source, step.length});
    }
  }
}

void JointPlanner::build_list(std::size_t layer) {
  std::vector<Point>& list = lists_[layer];
  list.clear();
  std::int64_t fastest = kMost;
  std::int64_t slowest = 0;
  for_each_plan(layer, [&](const Point& point) {
    fastest = std::min(fastest, point.time_ns);
    slowest = std::max(slowest, point.time_ns);
  });
  if (fastest == kMost) return;
  const auto count = static_cast<std::int64_t>(cells_.size());
  const std::int64_t cell_ns = (slowest - fastest) / count + 1;
  std::ranges::fill(cells_, Cell{});
  for_each_plan(layer, [&](const Point& point) {
    Cell& cell = cells_[static_cast<std::size_t>((point.time_ns - fastest) / cell_ns)];
    const std::int64_t bound_ns =
        cell.used ? std::min(cell.best.bound_ns, point.bound_ns) : point.bound_ns;
    const bool better = !cell.used || point.bytes < cell.best.bytes ||
                        (point.bytes == cell.best.bytes && point.time_ns < cell.best.time_ns);
    if (better) cell.best = point;
    cell.best.bound_ns = bound_ns;
    cell.used = true;
  });
  for (const Cell& cell : cells_) {  // time ascending
    if (!cell.used) continue;
    if (list.empty() || cell.best.bytes < list.back().bytes) {
      list.push_back(cell.best);
    } else {
      list.back().bound_ns = std::min(list.back().bound_ns, cell.best.bound_ns);
    }
  }
  std::ranges::reverse(list);
  // A faster plan may stand for what a slower one stands for: see for_each_plan.
  for (std::size_t n = 1; n < list.size(); ++n) {
    list[n].bound_ns = std::min(list[n].bound_ns, list[n - 1].bound_ns);
  }
}

std::optional<ChainPlan> JointPlanner::solve(const Chain& chain, const Candidates& candidates,
                                             std::int64_t budget_bytes) {
  const std::size_t layers = candidates.layers();
  compute_rooms(chain, candidates, budget_bytes);
  lists_.resize(layers + 1);
  cells_.resize(cells_for(layers));
  lists_[layers].assign(1, Point{.bytes = candidates.tail_bytes()});
  if (candidates.tail_bytes() > rooms_[layers]) return std::nullopt;
  for (std::size_t i = layers; i-- > 0;) {
    load_steps(chain, candidates, i);
    build_list(i);
  }
  if (lists_[0].empty()) return std::nullopt;
  return trace(chain, lists_[0].back());
}

ChainPlan JointPlanner::trace(const Chain& chain, const Point& begin) const {
  std::vector<std::uint8_t> choice(chain.layers.size(), 0);
  std::vector<std::uint8_t> joined(chain.layers.size(), 0);
  const Point* point = &begin;
  for (std::size_t i = 0; i < choice.size();) {
    const std::size_t behind = i + point->length;
    for (std::size_t k = i; k < behind; ++k) {
      choice[k] = point->length == 1 ? point->source : chain.joint_choice[k];
      joined[k] = k > i ? 1 : 0;
    }
    point = &lists_[behind][point->next];
    i = behind;
  }
  ChainPlan plan = evaluate(chain, choice, joined);
  if (plan.peak_bytes != begin.bytes) throw BugError("joint planner: a plan cannot be traced");
  plan.lower_bound_ns = std::max<std::int64_t>(0, begin.bound_ns);
  return plan;
}

std::vector<FrontierPoint> JointPlanner::points_below(std::int64_t below_bytes) const {
  std::vector<FrontierPoint> points;
  for (const Point& point : lists_[0]) {
    if (point.bytes < below_bytes) points.push_back({point.bytes, point.time_ns});
  }
  return points;
}

}  // namespace pudica::planner
