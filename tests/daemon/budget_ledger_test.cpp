// Goal: nothing is promised to a run that a daemon after this one would not know of, whatever
// becomes of the database. Method: the desk on a real store, and a second desk on the same file.
#include "daemon/budget_ledger.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "daemon/daemon_parts.h"

namespace pudica::daemon {
namespace {

using testing::HasSubstr;

StoredGroupRun stored_run(const std::string& id, std::int64_t bound) {
  StoredGroupRun run;
  run.id = id;
  run.group = "gpu";
  run.instance = "i-" + id;
  run.pid = 7;
  run.start_ticks = 12345;
  run.asked_bytes = 500;
  run.floor_bytes = 10;
  run.need_bytes = 300;
  run.bound_bytes = bound;
  run.pinned = true;
  return run;
}

struct BudgetLedgerTest : testing::Test {
  ScratchFolder folder;
  std::string path = folder.file("test.db");
  std::unique_ptr<Archive> archive = Archive::open({.path = path}).value();

  StoredGroups read_anew() { return BudgetLedger(*archive).read(); }
};

TEST_F(BudgetLedgerTest, ReadsBackWhatItWrote) {
  BudgetLedger ledger(*archive);
  const StoredGroups now{{{"gpu", 1000, std::nullopt}, {"tpu", 50, 40}},
                         {stored_run("b", 400), stored_run("a", 200)}};
  EXPECT_FALSE(ledger.covers(now));
  ASSERT_TRUE(ledger.write(now));
  EXPECT_TRUE(ledger.covers(now));
  const StoredGroups kept = read_anew();
  EXPECT_EQ(kept.groups, now.groups);
  EXPECT_EQ(kept.runs, now.runs) << "in the order in which they joined";
  const StoredGroups less{{{"gpu", 1000, std::nullopt}}, {stored_run("b", 300)}};
  EXPECT_FALSE(ledger.covers(less));
  ASSERT_TRUE(ledger.write(less));
  EXPECT_EQ(read_anew().runs, less.runs);
  EXPECT_EQ(read_anew().groups, less.groups);
}

TEST_F(BudgetLedgerTest, NeedsAloneMayWait) {
  BudgetLedger ledger(*archive);
  StoredGroups now{{}, {stored_run("a", 200)}};
  ASSERT_TRUE(ledger.write(now));
  now.runs[0].need_bytes = 999;
  EXPECT_TRUE(ledger.covers(now));
  now.runs[0].bound_bytes = 201;
  EXPECT_FALSE(ledger.covers(now));
  EXPECT_EQ(ledger.kept_bytes("a"), 200);
  EXPECT_EQ(ledger.kept_bytes("nobody"), 0);
}

TEST_F(BudgetLedgerTest, IsWrittenAnewWhereTheFileWasDamaged) {
  BudgetLedger ledger(*archive);
  const StoredGroups now{{{"gpu", 1000, std::nullopt}}, {stored_run("a", 200)}};
  ASSERT_TRUE(ledger.write(now));
  std::filesystem::resize_file(path + "-wal", 0);
  std::filesystem::resize_file(path, 100);
  StoredGroups more = now;
  more.runs.push_back(stored_run("b", 300));
  for (int i = 0; i < 3 && !ledger.covers(more); ++i) ledger.write(more);
  EXPECT_TRUE(ledger.covers(more));
  EXPECT_EQ(read_anew().runs, more.runs) << "also what was kept before";
}

TEST_F(BudgetLedgerTest, NobodyIsToldOfARaiseThatCannotBeKept) {
  ManualTime time;
  RunRegistry registry(time.clock(), {});
  BudgetDesk desk(registry, time.clock(), *archive, {std::chrono::milliseconds(0)});
  ASSERT_TRUE(desk.set_total("gpu", Bytes(1000)));
  const auto join = [&](const std::string& name, std::int64_t budget) {
    RunDescription about = described(name, ::getpid());
    about.group = "gpu";
    about.budget_bytes = Bytes(budget);
    const std::string id = registry.add(about).value();
    EXPECT_TRUE(desk.join(id, about));
    return id;
  };
  const auto told = [&](const std::string& id) {
    const auto commands = registry.commands(id, 0, std::chrono::milliseconds(0)).value();
    return commands.empty() ? Bytes(0)
                            : std::get<SetBudgetCommand>(commands.back().what).budget_bytes;
  };
  const std::string first = join("a", 600);
  const std::string second = join("b", 400);
  // Another process holds the database.
  auto store = Store::open({.path = path, .busy_timeout_ms = 0});
  ASSERT_TRUE(store) << store.error().message;
  ASSERT_TRUE((*store)->transaction([&](Store& held) -> Result<void> {
    EXPECT_TRUE(held.save_run({.id = "x"}));
    desk.on(second, NeedEvent{Bytes(900)});
    desk.ended(first);
    EXPECT_EQ(told(second), Bytes(0)) << "it would have 1000, and no other daemon would know";
    return {};
  }));
  desk.tick();
  EXPECT_EQ(told(second), Bytes(900)) << "once it is kept";
}

}  // namespace
}  // namespace pudica::daemon
