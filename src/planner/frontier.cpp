#include "planner/frontier.h"

#include <algorithm>

#include "planner/polish.h"
#include "planner/saturating.h"

namespace pudica::planner {
namespace {

FrontierPoint exact_fastest(const Candidates& candidates) {
  const Totals totals = candidates.totals(Choice(candidates.layers(), 0));
  return {totals.peak_bytes, totals.time_ns};
}

FrontierPoint exact_floor(const Candidates& candidates) {
  Choice choice;
  fastest_first(candidates, candidates.floors()[0], &choice);
  const Totals totals = candidates.totals(choice);
  return {totals.peak_bytes, totals.time_ns};
}

}  // namespace

void FrontierPass::Row::reset(std::int32_t cells) {
  const auto size = static_cast<std::size_t>(cells) + kRowBlock;
  if (bytes.size() == size) return;
  bytes.assign(size, kUnreachable);
  ticks.assign(size, 0);
}

void FrontierPass::load_modes(const Candidates& candidates, const ScaledBytes& bytes,
                              const TimeCells& cells, std::size_t layer) {
  modes_.clear();
  const auto all = candidates.all();
  for (std::size_t n = candidates.first(layer); n < candidates.first(layer + 1); ++n) {
    const std::int32_t cell = cells.of(layer, all[n].time_ns);
    if (cell >= cells.count()) continue;
    const std::int64_t down = all[n].time_ns >> tick_shift_;
    const auto ticks =
        static_cast<std::int32_t>(down + ((down << tick_shift_) == all[n].time_ns ? 0 : 1));
    modes_.push_back({cell, bytes.kept(n), bytes.peak(n), ticks});
  }
}

void FrontierPass::sweep(const Candidates& candidates, const ScaledBytes& bytes,
                         const TimeCells& cells) {
  next_.reset(cells.count());
  out_.reset(cells.count());
  const RowKernels& kernels = row_kernels();
  TimedRow next = next_.begin();
  next.bytes[0] = bytes.tail();
  next.ticks[0] = 0;
  longest_ = 0;
  std::int32_t filled = 1;
  for (std::size_t i = candidates.layers(); i-- > 0;) {
    load_modes(candidates, bytes, cells, i);
    const std::int32_t longest = std::min(cells.count() - 1, longest_ + modes_.back().cells);
    const std::int32_t end = block_end(longest + 1);
    std::fill(next.bytes + filled, next.bytes + end, next.bytes[longest_]);
    std::fill(next.ticks + filled, next.ticks + end, next.ticks[longest_]);
    kernels.timed_row(next, modes_.data(), modes_.size(), end, out_.begin());
    std::swap(next_, out_);
    next = next_.begin();
    longest_ = longest;
    filled = end;
  }
}

std::vector<FrontierPoint> FrontierPass::run(const Candidates& candidates, const ScaledBytes& bytes,
                                             const TimeCells& cells) {
  tick_shift_ = 0;
  const auto spare = static_cast<std::int64_t>(candidates.layers());
  while ((candidates.slowest_ns() >> tick_shift_) + spare >= kUnitLimit) ++tick_shift_;
  sweep(candidates, bytes, cells);

  std::vector<FrontierPoint> points{exact_floor(candidates)};
  points.reserve(static_cast<std::size_t>(cells.count()) + 2);
  const auto add = [&points](const FrontierPoint& point) {
    if (point.time_ns >= points.back().time_ns) return;
    if (point.peak_bytes <= points.back().peak_bytes) points.pop_back();
    points.push_back(point);
  };
  const TimedRow row = next_.begin();
  // Where units are coarse the fastest choice's exact bytes may be below those of some cells.
  const FrontierPoint fastest = exact_fastest(candidates);
  for (std::int32_t cell = longest_ + 1; cell-- > 0;) {  // peak ascending
    const std::int64_t peak_bytes = bytes.bytes(row.bytes[cell]);
    if (peak_bytes >= fastest.peak_bytes) break;
    add({peak_bytes, static_cast<std::int64_t>(row.ticks[cell]) << tick_shift_});
  }
  add(fastest);
  for (FrontierPoint& point : points) {
    point.time_ns = saturating_add(point.time_ns, candidates.fastest_ns());
  }
  return points;
}

}  // namespace pudica::planner
