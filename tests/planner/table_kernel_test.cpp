// Goal: every instruction set's loops compute the same as plain ones.
#include "planner/table_kernel.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "planner/scaling.h"

namespace pudica::planner {
namespace {

constexpr std::uint64_t kSeed = 99;
constexpr std::int32_t kCells = 4 * kRowBlock;

struct Row {
  std::vector<std::int32_t> bytes = std::vector<std::int32_t>(kCells + kRowBlock, kUnreachable);
  std::vector<std::int32_t> ticks = std::vector<std::int32_t>(kCells + kRowBlock, 0);
  TimedRow begin() { return {bytes.data() + kRowBlock, ticks.data() + kRowBlock}; }
};

std::vector<RowMode> random_modes(std::mt19937_64& random) {
  std::vector<RowMode> modes;
  std::int32_t cells = 0;
  for (std::size_t m = 0; m < random() % 11 + 1; ++m) {
    modes.push_back({cells, static_cast<std::int32_t>(random() % 2001) - 1000,
                     static_cast<std::int32_t>(random() % 3001) - 500,
                     static_cast<std::int32_t>(random() % 100)});
    cells += static_cast<std::int32_t>(random() % 90);
  }
  return modes;
}

TEST(RowKernels, AgreeWithThePlainLoopOnEveryInstructionSet) {
  std::mt19937_64 random(kSeed);
  const auto kernels = all_row_kernels();
  ASSERT_GE(kernels.size(), 1U);
  for (int n = 0; n < 300; ++n) {
    Row next;
    std::int32_t value = 5000;
    for (std::int32_t c = 0; c < kCells; ++c) {
      next.begin().bytes[c] = value;
      next.begin().ticks[c] = static_cast<std::int32_t>(random() % 1000);
      value -= static_cast<std::int32_t>(random() % 60);
    }
    const auto modes = random_modes(random);
    const auto end = static_cast<std::int32_t>(random() % kCells + 1);
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      Row out;
      Row timed;
      kernels[k].row(next.begin().bytes, modes.data(), modes.size(), end, out.begin().bytes);
      kernels[k].timed_row(next.begin(), modes.data(), modes.size(), end, timed.begin());
      for (std::int32_t c = 0; c < end; ++c) {
        std::int32_t least = kUnreachable;
        std::int32_t ticks = 0;
        for (const RowMode& mode : modes) {
          if (c < mode.cells) break;
          const std::int32_t bytes =
              std::max(mode.peak, mode.kept + next.begin().bytes[c - mode.cells]);
          if (bytes >= least) continue;
          least = bytes;
          ticks = mode.ticks + next.begin().ticks[c - mode.cells];
        }
        ASSERT_EQ(out.begin().bytes[c], least) << "seed " << kSeed << " set " << k;
        ASSERT_EQ(timed.begin().bytes[c], least) << "seed " << kSeed << " set " << k;
        ASSERT_EQ(timed.begin().ticks[c], ticks) << "seed " << kSeed << " set " << k;
      }
      // Nothing past the last block is written.
      if (block_end(end) < kCells) {
        ASSERT_EQ(out.begin().bytes[block_end(end)], kUnreachable);
        ASSERT_EQ(timed.begin().bytes[block_end(end)], kUnreachable);
      }
    }
  }
}

TEST(RowKernels, NeverTakeWhatIsUnreachable) {
  // The second mode's bytes would be least, were they not left of the row's first cell.
  Row next;
  for (std::int32_t c = 0; c < kCells; ++c) next.begin().bytes[c] = 100;
  const std::vector<RowMode> modes{{0, 7, 0, 0}, {10, -kUnitLimit + 200, 0, 50}};
  for (const RowKernels& kernel : all_row_kernels()) {
    Row out;
    kernel.timed_row(next.begin(), modes.data(), modes.size(), kCells, out.begin());
    EXPECT_EQ(out.begin().bytes[9], 107);
    EXPECT_EQ(out.begin().ticks[9], 0);
    EXPECT_EQ(out.begin().bytes[10], 0);
    EXPECT_EQ(out.begin().ticks[10], 50);
  }
}

}  // namespace
}  // namespace pudica::planner
