// The two loops that planning spends its time in, compiled for several instruction sets and
// chosen when the program starts. Plain functions of arrays; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pudica::planner {

// Rows are computed in blocks; a row has kRowBlock cells of kUnreachable to its left and room for
// whole blocks.
inline constexpr std::int32_t kRowBlock = 64;

// Where a row's cells that cover `cells` of them end: whole blocks.
inline constexpr std::int32_t block_end(std::int32_t cells) {
  return (cells + kRowBlock - 1) / kRowBlock * kRowBlock;
}

// One mode of the row's layer, in the table's units. Modes come in ascending `cells`.
struct RowMode {
  std::int32_t cells = 0;  // rounded time
  std::int32_t kept = 0;
  std::int32_t peak = 0;
  std::int32_t ticks = 0;  // exact time, used by timed_row alone
};

// A row of least bytes and, for timed_row, the time of the choice that reaches them.
struct TimedRow {
  std::int32_t* bytes = nullptr;
  std::int32_t* ticks = nullptr;
};

struct RowKernels {
  // out[b] = min over modes of max(peak, kept + next[b - cells]), b < end rounded up to a block.
  void (*row)(const std::int32_t* next, const RowMode* modes, std::size_t count, std::int32_t end,
              std::int32_t* out);
  // The same, and the time of the mode that is least plus the time at its cell.
  void (*timed_row)(TimedRow next, const RowMode* modes, std::size_t count, std::int32_t end,
                    TimedRow out);
};

// The fastest that this processor runs.
const RowKernels& row_kernels();

// All that this processor runs, slowest first: for tests.
std::vector<RowKernels> all_row_kernels();

}  // namespace pudica::planner
