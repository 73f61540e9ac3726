// Bringing the store within its bounds.
#include <SQLiteCpp/Exception.h>
#include <algorithm>
#include <string>
#include <vector>

#include "daemon/store_database.h"

namespace pudica::daemon {
namespace {

constexpr std::int64_t kRunsAtOnce = 16;
constexpr int kMostRounds = 4096;

// Runs that have steps, by a seek for each instead of a scan of all steps.
constexpr const char* kRunsWithSteps =
    "WITH RECURSIVE run(id) AS (SELECT MIN(run_id) FROM steps UNION ALL "
    "SELECT (SELECT MIN(run_id) FROM steps WHERE run_id > run.id) FROM run "
    "WHERE run.id IS NOT NULL) SELECT id FROM run WHERE id IS NOT NULL";

std::vector<std::string> texts(StoreQuery& query) {
  std::vector<std::string> out;
  while (query.next()) out.push_back(query.text(0));
  return out;
}

void remove_run(StoreDatabase& database, const std::string& id) {
  StoreQuery(database, "DELETE FROM steps WHERE run_id = ?").with(id).run();
  StoreQuery(database, "DELETE FROM plans WHERE run_id = ?").with(id).run();
  StoreQuery(database, "DELETE FROM runs WHERE id = ?").with(id).run();
}

std::int64_t remove_oldest_runs(StoreDatabase& database, std::int64_t most) {
  std::vector<std::string> oldest;
  {
    StoreQuery query(database,
                     "SELECT id FROM runs WHERE ended_at <> '' ORDER BY ended_at, rowid LIMIT ?");
    query.with(most);
    oldest = texts(query);
  }
  for (const std::string& id : oldest) remove_run(database, id);
  return static_cast<std::int64_t>(oldest.size());
}

std::int64_t remove_oldest_models(StoreDatabase& database, std::int64_t most) {
  return StoreQuery(database,
                    "DELETE FROM models WHERE fingerprint IN (SELECT fingerprint FROM models "
                    "ORDER BY updated_at, rowid LIMIT ?)")
      .with(most)
      .run();
}

// The lower half, by number, of every run's steps.
std::int64_t halve_steps(StoreDatabase& database) {
  std::vector<std::string> runs;
  {
    StoreQuery query(database, kRunsWithSteps);
    runs = texts(query);
  }
  std::int64_t removed = 0;
  for (const std::string& id : runs) {
    removed += StoreQuery(database,
                          "DELETE FROM steps WHERE run_id = ?1 AND step <= (SELECT MIN(step) + "
                          "(MAX(step) - MIN(step)) / 2 FROM steps WHERE run_id = ?1)")
                   .with(id)
                   .run();
  }
  return removed;
}

void remove_orphans(StoreDatabase& database) {
  std::vector<std::string> runs;
  {
    StoreQuery query(database, kRunsWithSteps);
    runs = texts(query);
  }
  for (const std::string& id : runs) {
    bool known = false;
    {
      StoreQuery query(database, "SELECT 1 FROM runs WHERE id = ?");
      known = query.with(id).next();
    }
    if (!known) remove_run(database, id);
  }
  StoreQuery(database, "DELETE FROM plans WHERE run_id NOT IN (SELECT id FROM runs)").run();
}

std::int64_t used_bytes(StoreDatabase& database) {
  return (database.number("PRAGMA page_count") - database.number("PRAGMA freelist_count")) *
         database.number("PRAGMA page_size");
}

void bound_bytes(StoreDatabase& database, std::int64_t max_bytes) {
  if (used_bytes(database) <= max_bytes) return;
  const std::int64_t target = max_bytes / 10 * 9;  // so that not every call has to
  for (int round = 0; round < kMostRounds && used_bytes(database) > target; ++round) {
    if (remove_oldest_runs(database, kRunsAtOnce) > 0) continue;
    if (halve_steps(database) > 0) continue;
    const std::int64_t models = database.number("SELECT COUNT(*) FROM models");
    if (remove_oldest_models(database, std::max<std::int64_t>(1, models / 4)) > 0) continue;
    if (StoreQuery(database, "DELETE FROM plans").run() == 0) break;
  }
}

void remove_excess(StoreDatabase& database, const StoreOptions& options) {
  const std::int64_t runs = database.number("SELECT COUNT(*) FROM runs");
  if (runs > options.max_runs) remove_oldest_runs(database, runs - options.max_runs);
  const std::int64_t models = database.number("SELECT COUNT(*) FROM models");
  if (models > options.max_models) remove_oldest_models(database, models - options.max_models);
  remove_orphans(database);
  bound_bytes(database, options.max_bytes);
}

}  // namespace

void prune_database(StoreDatabase& database, const StoreOptions& options) {
  database.execute("BEGIN IMMEDIATE");
  try {
    remove_excess(database, options);
    database.execute("COMMIT");
  } catch (const SQLite::Exception&) {
    try {
      database.execute("ROLLBACK");
    } catch (const SQLite::Exception&) {
      // SQLite has rolled back already; the first error is the one to tell.
    }
    throw;
  }
  if (database.number("PRAGMA freelist_count") > 0) database.execute("PRAGMA incremental_vacuum");
  database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace pudica::daemon
