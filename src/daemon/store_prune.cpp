// Bringing the store within its bounds.
#include <SQLiteCpp/Exception.h>
#include <algorithm>
#include <string>
#include <vector>

#include "daemon/store_database.h"
#include "daemon/store_limits.h"

namespace pudica::daemon {
namespace {

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

// Runs `body` in a transaction of its own: the journal is written back between two of them.
template <typename Body>
auto in_transaction(StoreDatabase& database, const Body& body) {
  database.execute("BEGIN IMMEDIATE");
  try {
    const auto done = body();
    database.execute("COMMIT");
    return done;
  } catch (const SQLite::Exception&) {
    try {
      database.execute("ROLLBACK");
    } catch (const SQLite::Exception&) {
      // SQLite has rolled back already; the first error is the one to tell.
    }
    throw;
  }
}

// Rows that went; 0: there is nothing left to remove.
std::int64_t remove_some(StoreDatabase& database) {
  if (const auto runs = remove_oldest_runs(database, 1); runs > 0) return runs;
  if (const auto steps = halve_steps(database); steps > 0) return steps;
  const std::int64_t models = database.number("SELECT COUNT(*) FROM models");
  const auto some = std::max<std::int64_t>(1, models / 4);
  if (const auto removed = remove_oldest_models(database, some); removed > 0) return removed;
  return StoreQuery(database, "DELETE FROM plans").run();
}

void bound_bytes(StoreDatabase& database, const StoreLimits& limits) {
  if (used_bytes(database) <= limits.crowded_bytes) return;
  for (int round = 0; round < kMostRounds && used_bytes(database) > limits.pruned_bytes; ++round) {
    if (in_transaction(database, [&] { return remove_some(database); }) == 0) return;
  }
}

std::int64_t remove_excess(StoreDatabase& database, const StoreOptions& options) {
  const std::int64_t runs = database.number("SELECT COUNT(*) FROM runs");
  if (runs > options.max_runs) remove_oldest_runs(database, runs - options.max_runs);
  const std::int64_t models = database.number("SELECT COUNT(*) FROM models");
  if (models > options.max_models) remove_oldest_models(database, models - options.max_models);
  remove_orphans(database);
  return runs;
}

// Moves pages from the end of the file into those that are free, some at a time.
void give_back_pages(StoreDatabase& database, const StoreLimits& limits) {
  const std::int64_t pages =
      std::max<std::int64_t>(1, limits.transaction_bytes / database.page_bytes());
  const std::string some = "PRAGMA incremental_vacuum(" + std::to_string(pages) + ")";
  std::int64_t free = database.number("PRAGMA freelist_count");
  while (free > 0) {
    database.execute(some.c_str());
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    const std::int64_t left = database.number("PRAGMA freelist_count");
    if (left >= free) return;
    free = left;
  }
}

}  // namespace

std::int64_t remove_ended_runs(StoreDatabase& database, const std::string& until) {
  std::vector<std::string> ended;
  {
    StoreQuery query(database, "SELECT id FROM runs WHERE ended_at <> '' AND ended_at <= ?");
    query.with(until);
    ended = texts(query);
  }
  for (const std::string& id : ended) {
    in_transaction(database, [&] {
      remove_run(database, id);
      return true;
    });
  }
  return static_cast<std::int64_t>(ended.size());
}

std::int64_t used_bytes(StoreDatabase& database) {
  return (database.number("PRAGMA page_count") - database.number("PRAGMA freelist_count")) *
         database.page_bytes();
}

void prune_database(StoreDatabase& database, const StoreOptions& options,
                    const StoreLimits& limits) {
  in_transaction(database, [&] { return remove_excess(database, options); });
  bound_bytes(database, limits);
  give_back_pages(database, limits);
  database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  bound_size(database, options);
}

}  // namespace pudica::daemon
