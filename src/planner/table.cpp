#include "planner/table.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pudica::planner {

std::int32_t table_cells(std::size_t layers, std::int32_t wanted) {
  // Half of the cells at least are for time, not for rounding.
  const std::int64_t least = 2 * (static_cast<std::int64_t>(layers) + kRowBlock);
  const std::int64_t cells = std::max<std::int64_t>(wanted, least);
  return block_end(static_cast<std::int32_t>(cells));
}

void TimeCells::set(std::size_t layers, std::int32_t cells, std::int64_t range_ns) {
  cells_ = cells;
  const std::int64_t usable = cells - 2 - static_cast<std::int64_t>(layers);
  cell_ns_ = std::max<std::int64_t>(1, range_ns / usable + (range_ns % usable != 0 ? 1 : 0));
}

std::int32_t TimeCells::of(std::size_t layer, std::int64_t time_ns) const {
  constexpr double kGoldenFraction = 0.6180339887498949;
  const double turns = static_cast<double>(layer + 1) * kGoldenFraction;
  const double dither = turns - std::floor(turns);
  const double cells = static_cast<double>(time_ns) / static_cast<double>(cell_ns_) + dither;
  return cells < cells_ ? static_cast<std::int32_t>(cells) : cells_;
}

void Table::reserve_rows(std::size_t layers) {
  const std::size_t needed = offset(layers + 1);
  if (rows_.size() < needed) rows_.resize(needed);
  // Tables of any width share the memory, which the second of two finds in the cache.
  for (std::size_t i = 0; i <= layers; ++i)
    std::fill_n(row(i) - kRowBlock, kRowBlock, kUnreachable);
}

std::int32_t Table::load_modes(std::size_t layer) {
  modes_.clear();
  std::int64_t most_over_ns = 0;
  const auto all = candidates_->all();
  for (std::size_t n = candidates_->first(layer); n < candidates_->first(layer + 1); ++n) {
    const std::int32_t cells = cells_.of(layer, all[n].time_ns);
    mode_cells_[n] = cells;
    if (cells >= cells_.count()) continue;
    most_over_ns = std::max(most_over_ns, cells_.cell_ns() * cells - all[n].time_ns);
    modes_.push_back({cells, bytes_->kept(n), bytes_->peak(n), 0});
  }
  rounded_up_ns_[layer] = rounded_up_ns_[layer + 1] + most_over_ns;
  return modes_.back().cells;  // ascending in time; the fastest mode is always in range
}

void Table::build(const Candidates& candidates, const ScaledBytes& bytes, const TimeCells& cells) {
  candidates_ = &candidates;
  bytes_ = &bytes;
  cells_ = cells;
  rounded_up_ns_.assign(candidates.layers() + 1, 0);
  mode_cells_.resize(candidates.all().size());
  reserve_rows(candidates.layers());
  const RowKernels& kernels = row_kernels();
  longest_.assign(candidates.layers() + 1, 0);
  std::int32_t* next = row(candidates.layers());
  next[0] = bytes.tail();
  std::int32_t filled = 1;  // cells of `next` that hold a value
  for (std::size_t i = candidates.layers(); i-- > 0;) {
    longest_[i] = std::min(cells_.count() - 1, longest_[i + 1] + load_modes(i));
    const std::int32_t end = block_end(longest_[i] + 1);
    std::fill(next + filled, next + end, next[longest_[i + 1]]);
    std::int32_t* out = row(i);
    kernels.row(next, modes_.data(), modes_.size(), end, out);
    filled = end;
    next = out;
  }
}

std::int32_t Table::at(std::size_t layer, std::int32_t cell) const {
  return row(layer)[std::min(cell, longest_[layer])];
}

std::int32_t Table::first_cell(std::int32_t budget_units) const {
  const std::int32_t* begin = row(0);
  const std::int32_t* end = begin + longest_[0] + 1;
  const std::int32_t* found = std::partition_point(
      begin, end, [budget_units](std::int32_t units) { return units > budget_units; });
  return found == end ? cells_.count() : static_cast<std::int32_t>(found - begin);
}

bool Table::plan(std::int32_t budget_units, Choice* choice) const {
  std::int32_t left_cells = first_cell(budget_units);
  if (left_cells == cells_.count()) return false;
  std::int32_t left_units = budget_units;
  const auto all = candidates_->all();
  choice->resize(candidates_->layers());
  for (std::size_t i = 0; i < choice->size(); ++i) {
    const std::size_t first = candidates_->first(i);
    std::size_t best = all.size();
    std::int64_t best_over_ns = std::numeric_limits<std::int64_t>::max();
    for (std::size_t n = first; n < candidates_->first(i + 1); ++n) {
      const std::int32_t cell = left_cells - mode_cells_[n];
      if (cell < 0) break;  // ascending in time
      if (bytes_->peak(n) > left_units || at(i + 1, cell) > left_units - bytes_->kept(n)) continue;
      const std::int64_t over_ns = all[n].time_ns - cells_.cell_ns() * mode_cells_[n];
      if (over_ns >= best_over_ns) continue;
      best_over_ns = over_ns;
      best = n;
    }
    if (best == all.size()) throw BugError("table: a cell's choice cannot be traced");
    (*choice)[i] = static_cast<std::uint8_t>(best - first);
    left_cells -= mode_cells_[best];
    left_units -= bytes_->kept(best);
  }
  return true;
}

std::int64_t Table::lower_bound_ns(std::int32_t optimistic_units) const {
  const std::int64_t rounded_ns = first_cell(optimistic_units) * cells_.cell_ns();
  return std::max<std::int64_t>(0, rounded_ns - rounded_up_ns_[0]);
}

std::int64_t Table::least_ns(std::size_t layer, std::int64_t room_bytes, std::int32_t* from) const {
  const std::int32_t units = bytes_->optimistic_units(room_bytes);
  const std::int32_t* cells = row(layer);
  const std::int32_t count = longest_[layer] + 1;
  // Cells before `low` are too much; steps double, for the next is often near.
  std::int32_t low = *from;
  std::int32_t step = 1;
  while (low + step <= count && cells[low + step - 1] > units) {
    low += step;
    step *= 2;
  }
  const std::int32_t high = std::min(low + step, count);
  const std::int32_t* found = std::partition_point(
      cells + low, cells + high, [units](std::int32_t value) { return value > units; });
  *from = static_cast<std::int32_t>(found - cells);
  if (*from == count) return std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, *from * cells_.cell_ns() - rounded_up_ns_[layer]);
}

}  // namespace pudica::planner
