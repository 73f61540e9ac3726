#include "cli/table.h"

#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::cli {
namespace {

Style plain(std::size_t width) { return {true, false, true, width}; }

Table sample() {
  Table table({{"NAME", false, true}, {"PEAK", true}, {"GROUP", false, false, 1}});
  table.add({{"train"}, {"612.5 MiB"}, {"gpu0"}});
  table.add({{"a-name-that-is-long"}, {"1 B"}, {"-"}});
  return table;
}

std::string printed(const Table& table, std::size_t width) {
  std::ostringstream out;
  table.print(out, plain(width));
  return out.str();
}

TEST(Table, AlignsColumns) {
  EXPECT_EQ(printed(sample(), 80),
            "NAME                      PEAK  GROUP\n"
            "train                612.5 MiB  gpu0\n"
            "a-name-that-is-long        1 B  -\n");
}

TEST(Table, ClipsAndThenLeavesOutColumnsWhereTheTerminalIsNarrow) {
  EXPECT_EQ(printed(sample(), 28),
            "NAME             PEAK  GROUP\n"
            "train       612.5 MiB  gpu0\n"
            "a-name-th\u2026        1 B  -\n");
  EXPECT_EQ(printed(sample(), 22),
            "NAME           PEAK\n"
            "train     612.5 MiB\n"
            "a-name-\u2026        1 B\n");
}

TEST(Table, KeepsToTheWidthAsLongAsColumnsMayGo) {
  for (std::size_t width = 19; width < 60; ++width) {
    std::istringstream lines(printed(sample(), width));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width);
  }
}

TEST(PrintFields, WritesAHeaderAndOneLineAnObject) {
  const Json run = Json::parse(R"({"id":"k3","name":"a\tb\nc","peak":null,"cache":{"hits":3},
                                   "modes":["keep","full"],"ok":true})");
  std::ostringstream out;
  print_fields(out, {"id", "name", "peak", "cache.hits", "modes", "ok", "absent"}, {&run});
  EXPECT_EQ(out.str(),
            "id\tname\tpeak\tcache.hits\tmodes\tok\tabsent\n"
            "k3\ta\\tb\\nc\t-\t3\tkeep,full\ttrue\t-\n");
}

}  // namespace
}  // namespace pudica::cli
