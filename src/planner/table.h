// The time-indexed table: least bytes of the layers from i on, for every rounded time.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"
#include "planner/scaling.h"
#include "planner/table_kernel.h"

namespace pudica::planner {

// Rounds times to cells of `cell_ns`. A layer's times are offset by a fixed fraction of a cell of
// its own (dither), else equal layers round alike and their errors add up.
class TimeCells {
 public:
  // A plan of `range_ns` or less must stay within `cells`: one cell a layer is held back for
  // rounding. Requires: cells > layers + 2, range_ns >= 0.
  void set(std::size_t layers, std::int32_t cells, std::int64_t range_ns);

  [[nodiscard]] std::int64_t cell_ns() const { return cell_ns_; }
  [[nodiscard]] std::int32_t count() const { return cells_; }
  // The rounded time of a mode, or count() where it is out of range.
  [[nodiscard]] std::int32_t of(std::size_t layer, std::int64_t time_ns) const;

 private:
  std::int32_t cells_ = 0;
  std::int64_t cell_ns_ = 1;
};

// The least cells a table of so many layers may have, as a whole number of blocks.
std::int32_t table_cells(std::size_t layers, std::int32_t wanted);

// R_i[tau] = the least R_i of a choice of rounded time tau or less, exact in scaled units: every
// cell is a real choice. Rows do not increase with tau. Keeps its buffers. Not thread-safe.
class Table {
 public:
  // Keeps references to both until the next build().
  void build(const Candidates& candidates, const ScaledBytes& bytes, const TimeCells& cells);

  // The choice of least rounded time whose scaled R_1 is at most budget_units; where several modes
  // lead to it, the one whose true time is least against its rounded time. False: none fits.
  bool plan(std::int32_t budget_units, Choice* choice) const;

  // No choice that takes range_ns or less and fits the exact bytes is faster than this.
  // `optimistic_units`: ScaledBytes::optimistic_units of the budget.
  [[nodiscard]] std::int64_t lower_bound_ns(std::int32_t optimistic_units) const;

  // The same of the layers from `layer` on, within `room_bytes`; the largest int64 where none takes
  // range_ns or less. `from`: where to look first; set to where it was found. Requires: no more
  // room than when `from` was set.
  [[nodiscard]] std::int64_t least_ns(std::size_t layer, std::int64_t room_bytes,
                                      std::int32_t* from) const;

 private:
  [[nodiscard]] std::int32_t* row(std::size_t layer) { return rows_.data() + offset(layer); }
  [[nodiscard]] const std::int32_t* row(std::size_t layer) const {
    return rows_.data() + offset(layer);
  }
  [[nodiscard]] std::size_t offset(std::size_t layer) const {
    return layer * static_cast<std::size_t>(cells_.count() + kRowBlock) + kRowBlock;
  }
  void reserve_rows(std::size_t layers);
  // The layer's modes that are in range, and their largest rounded time.
  std::int32_t load_modes(std::size_t layer);
  // R of the layers from `layer` on.
  [[nodiscard]] std::int32_t at(std::size_t layer, std::int32_t cell) const;
  // count() where no cell is within the budget.
  [[nodiscard]] std::int32_t first_cell(std::int32_t budget_units) const;

  const Candidates* candidates_ = nullptr;
  const ScaledBytes* bytes_ = nullptr;
  TimeCells cells_;
  // [i]: E+ of the layers from i on: most by which their rounded time exceeds their time
  std::vector<std::int64_t> rounded_up_ns_;
  std::vector<std::int32_t> rows_;
  // [i]: rounded time of the slowest choice of the layers from i on. Past it every choice is in
  // reach and the row stays as it is; what is stored there is of no use.
  std::vector<std::int32_t> longest_;
  std::vector<std::int32_t> mode_cells_;  // parallel to Candidates::all()
  std::vector<RowMode> modes_;
};

}  // namespace pudica::planner
