// The tables of budget groups.
#include "daemon/store_database.h"
#include "daemon/stored_groups.h"

namespace pudica::daemon {
namespace {

// No number of bytes or ticks is below 0: that stands for none.
constexpr std::int64_t kNone = -1;

constexpr const char* kSaveRun =
    "INSERT INTO budget_runs (id, budget_group, instance, pid, start_ticks, asked, floor, need, "
    "bound, pinned, need_known) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO "
    "UPDATE SET budget_group = excluded.budget_group, instance = excluded.instance, "
    "pid = excluded.pid, start_ticks = excluded.start_ticks, asked = excluded.asked, "
    "floor = excluded.floor, need = excluded.need, bound = excluded.bound, "
    "pinned = excluded.pinned, need_known = excluded.need_known";
constexpr const char* kRuns =
    "SELECT id, budget_group, instance, pid, start_ticks, asked, floor, need, bound, pinned, "
    "need_known FROM budget_runs ORDER BY rowid";

std::optional<std::int64_t> known(std::int64_t number) {
  return number < 0 ? std::nullopt : std::optional(number);
}

}  // namespace

StoredGroups read_groups(StoreDatabase& database) {
  StoredGroups out;
  StoreQuery groups(database, "SELECT name, total, file_total FROM budget_groups ORDER BY name");
  while (groups.next()) {
    out.groups.push_back({groups.text(0), known(groups.number(1)), known(groups.number(2))});
  }
  StoreQuery runs(database, kRuns);
  while (runs.next()) {
    out.runs.push_back({runs.text(0), runs.text(1), runs.text(2), runs.number(3),
                        known(runs.number(4)), runs.number(5), runs.number(6), runs.number(7),
                        runs.number(8), runs.number(9) != 0, runs.number(10) != 0});
  }
  return out;
}

void write_groups(StoreDatabase& database, const StoredGroupChanges& changes) {
  for (const std::string& name : changes.removed_groups) {
    StoreQuery(database, "DELETE FROM budget_groups WHERE name = ?").with(name).run();
  }
  for (const std::string& id : changes.removed_runs) {
    StoreQuery(database, "DELETE FROM budget_runs WHERE id = ?").with(id).run();
  }
  for (const StoredGroup& group : changes.saved.groups) {
    StoreQuery query(database,
                     "INSERT OR REPLACE INTO budget_groups (name, total, file_total) "
                     "VALUES (?, ?, ?)");
    query.with(group.name).with(group.total_bytes.value_or(kNone));
    query.with(group.file_total_bytes.value_or(kNone)).run();
  }
  for (const StoredGroupRun& run : changes.saved.runs) {
    StoreQuery query(database, kSaveRun);
    query.with(run.id).with(run.group).with(run.instance).with(run.pid);
    query.with(run.start_ticks.value_or(kNone)).with(run.asked_bytes).with(run.floor_bytes);
    query.with(run.need_bytes).with(run.bound_bytes).with(std::int64_t{run.pinned});
    query.with(std::int64_t{run.need_known}).run();
  }
}

}  // namespace pudica::daemon
