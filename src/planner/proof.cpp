#include "planner/proof.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/saturating.h"

namespace pudica::planner {

void Proof::expand(const Candidates& candidates, const LpCertificate& certificate,
                   std::size_t layer) {
  const std::vector<State>& list = lists_[layer];
  const std::int64_t floor = candidates.floors()[layer + 1];
  const auto modes = candidates.of(layer);
  next_.clear();
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const std::int64_t most_held = std::min(
        saturating_subtract(budget_bytes_, modes[m].peak_bytes),
        saturating_subtract(saturating_subtract(budget_bytes_, modes[m].kept_bytes), floor));
    for (std::size_t n = 0; n < list.size() && list[n].held <= most_held; ++n) {
      const std::int64_t time_ns = list[n].time_ns + modes[m].time_ns;
      if (time_ns >= limit_ns_) continue;
      const std::int64_t held = saturating_add(list[n].held, modes[m].kept_bytes);
      const std::int64_t room = saturating_subtract(budget_bytes_, held);
      const std::int64_t promise_ns =
          saturating_add(time_ns, certificate.least_ns(layer + 1, room));
      if (promise_ns >= limit_ns_) continue;
      next_.push_back(
          {held, time_ns, promise_ns, static_cast<std::uint32_t>(n), static_cast<std::uint8_t>(m)});
    }
  }
}

void Proof::keep_best_of_equals() {
  std::ranges::sort(next_, [](const State& left, const State& right) {
    return std::tie(left.held, left.time_ns) < std::tie(right.held, right.time_ns);
  });
  std::size_t kept = 0;
  std::int64_t least_ns = std::numeric_limits<std::int64_t>::max();
  for (const State& state : next_) {
    if (state.time_ns >= least_ns) continue;
    least_ns = state.time_ns;
    next_[kept++] = state;
  }
  next_.resize(kept);
}

void Proof::judge(const Table& table, std::size_t behind) {
  std::size_t kept = 0;
  std::int32_t cell = 0;
  for (State state : next_) {  // held ascending, so that the room falls
    const std::int64_t room = saturating_subtract(budget_bytes_, state.held);
    const std::int64_t rest_ns = table.least_ns(behind, room, &cell);
    state.promise_ns = std::max(state.promise_ns, saturating_add(state.time_ns, rest_ns));
    if (state.promise_ns < limit_ns_) next_[kept++] = state;
  }
  next_.resize(kept);
}

void Proof::drop_least_promising(std::size_t most) {
  if (next_.size() <= most) return;
  promises_.clear();
  for (const State& state : next_) promises_.push_back(state.promise_ns);
  const auto last = promises_.begin() + static_cast<std::ptrdiff_t>(most);
  std::ranges::nth_element(promises_, last);
  const std::int64_t from_ns = *last;
  dropped_ns_ = std::min(dropped_ns_, from_ns);
  std::erase_if(next_, [from_ns](const State& state) { return state.promise_ns >= from_ns; });
}

void Proof::take_best(Incumbent* incumbent) const {
  const std::vector<State>& last = lists_.back();
  if (last.empty()) return;
  const State* state = &last.back();  // the fastest
  incumbent->time_ns = state->time_ns;
  for (std::size_t i = incumbent->choice.size(); i-- > 0;) {
    incumbent->choice[i] = state->mode;
    state = &lists_[i][state->parent];
  }
}

void Proof::run(const Candidates& candidates, const LpCertificate& certificate, const Table& table,
                const ProofOptions& options, Incumbent* incumbent) {
  const std::size_t layers = candidates.layers();
  budget_bytes_ = options.budget_bytes;
  limit_ns_ = incumbent->time_ns - options.good_enough_ns;
  if (limit_ns_ <= incumbent->bound_ns) return;
  dropped_ns_ = limit_ns_;
  const auto most = std::max<std::size_t>(16, static_cast<std::size_t>(options.states) / layers);
  lists_.resize(layers + 1);
  lists_[0].assign(1, State{});
  for (std::size_t i = 0; i < layers; ++i) {
    expand(candidates, certificate, i);
    keep_best_of_equals();
    judge(table, i + 1);
    drop_least_promising(most);
    if (dropped_ns_ <= incumbent->bound_ns) return;  // nothing would come of it
    lists_[i + 1] = next_;
  }
  take_best(incumbent);
  incumbent->bound_ns = std::clamp(dropped_ns_, incumbent->bound_ns,
                                   std::max(incumbent->bound_ns, incumbent->time_ns));
}

}  // namespace pudica::planner
