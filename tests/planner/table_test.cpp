#include "planner/table.h"

#include <gtest/gtest.h>

namespace pudica::planner {
namespace {

Chain three_layers() {
  Chain chain;
  for (int i = 0; i < 3; ++i) chain.layers.push_back({{100, 120, 0}, {40, 120, 30}, {10, 120, 90}});
  chain.tail_bytes = 20;
  return chain;
}

struct Built {
  Candidates candidates;
  ScaledBytes bytes;
  TimeCells cells;
  Table table;

  Built(const Chain& chain, std::int32_t count, std::int64_t range_ns) {
    EXPECT_TRUE(candidates.collect(chain).has_value());
    bytes.scale(candidates);
    cells.set(candidates.layers(), count, range_ns);
    table.build(candidates, bytes, cells);
  }
};

TEST(TimeCells, HoldOneCellALayerBackForRounding) {
  TimeCells cells;
  cells.set(24, 512, 486'000);
  EXPECT_EQ(cells.cell_ns(), 1000);
  cells.set(24, 512, 486'001);
  EXPECT_EQ(cells.cell_ns(), 1001);
  cells.set(24, 512, 0);
  EXPECT_EQ(cells.cell_ns(), 1);
}

TEST(TimeCells, RoundEachLayerByItsOwnFraction) {
  TimeCells cells;
  cells.set(4, 64, 58'000);
  ASSERT_EQ(cells.cell_ns(), 1000);
  // Layer 0 has .618 of a cell on top, layer 1 .236.
  EXPECT_EQ(cells.of(0, 0), 0);
  EXPECT_EQ(cells.of(0, 381), 0);
  EXPECT_EQ(cells.of(0, 383), 1);
  EXPECT_EQ(cells.of(1, 763), 0);
  EXPECT_EQ(cells.of(1, 765), 1);
  EXPECT_EQ(cells.of(0, std::int64_t{1} << 50), 64);  // out of range
}

TEST(TableCells, AreWholeBlocksWithRoomForTheLayers) {
  EXPECT_EQ(table_cells(8, 512), 512);
  EXPECT_EQ(table_cells(8, 500), 512);
  EXPECT_EQ(table_cells(8, -1), 192);
  EXPECT_GE(table_cells(3000, 512), 6000);
}

TEST(Table, FindsTheLeastTimeWithinABudget) {
  const Built built(three_layers(), 512, 270);
  ASSERT_EQ(built.cells.cell_ns(), 1);  // times are exact
  Choice choice;
  ASSERT_TRUE(built.table.plan(320, &choice));
  EXPECT_EQ(choice, (Choice{0, 0, 0}));
  ASSERT_TRUE(built.table.plan(260, &choice));
  EXPECT_EQ(built.candidates.totals(choice).time_ns, 30);
  EXPECT_LE(built.candidates.totals(choice).peak_bytes, 260);
  EXPECT_FALSE(built.table.plan(129, &choice));  // the floor is 10 + 120 at layer 1
}

TEST(Table, BoundIsTheOptimumWhereTimesAreExact) {
  const Built built(three_layers(), 512, 270);
  EXPECT_EQ(built.table.lower_bound_ns(320), 0);
  EXPECT_EQ(built.table.lower_bound_ns(319), 30);
  EXPECT_EQ(built.table.lower_bound_ns(259), 60);
}

TEST(Table, SkipsModesPastItsRangeAndStillBoundsThoseWithin) {
  // 40 ns of range: one layer at most may take its second mode, none its third.
  const Built built(three_layers(), 64, 40);
  Choice choice;
  ASSERT_TRUE(built.table.plan(260, &choice));
  EXPECT_EQ(built.candidates.totals(choice).time_ns, 30);
  EXPECT_GE(built.table.lower_bound_ns(129), 40);  // nothing within the range
}

TEST(Table, ForgetsTheChainBefore) {
  Built built(three_layers(), 512, 270);
  Chain small;
  small.layers = {{{5, 6, 0}, {1, 6, 4}}};
  ASSERT_TRUE(built.candidates.collect(small).has_value());
  built.bytes.scale(built.candidates);
  built.cells.set(1, 512, 4);
  built.table.build(built.candidates, built.bytes, built.cells);
  Choice choice;
  ASSERT_TRUE(built.table.plan(6, &choice));
  EXPECT_EQ(choice, (Choice{0}));
  EXPECT_FALSE(built.table.plan(5, &choice));
}

}  // namespace
}  // namespace pudica::planner
