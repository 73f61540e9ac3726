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
  const auto size = static_cast<std::size_t>(cells + kRowBlock);
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
  TimedRow tail = next_.begin();
  std::fill(tail.bytes, tail.bytes + cells.count(), bytes.tail());
  std::fill(tail.ticks, tail.ticks + cells.count(), 0);
  std::int32_t longest = 0;
  for (std::size_t i = candidates.layers(); i-- > 0;) {
    load_modes(candidates, bytes, cells, i);
    longest = std::min(cells.count() - 1, longest + modes_.back().cells);
    const TimedRow out = out_.begin();
    kernels.timed_row(next_.begin(), modes_, longest + 1, out);
    std::fill(out.bytes + longest + 1, out.bytes + cells.count(), out.bytes[longest]);
    std::fill(out.ticks + longest + 1, out.ticks + cells.count(), out.ticks[longest]);
    std::swap(next_, out_);
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
  for (std::int32_t cell = cells.count(); cell-- > 0;) {  // peak ascending
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
