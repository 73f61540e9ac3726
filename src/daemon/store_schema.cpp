#include "daemon/store_schema.h"

#include <array>

namespace pudica::daemon {
namespace {

// Runs with the plans they last had, and learned models.
constexpr const char* kVersion1 = R"sql(
  CREATE TABLE runs (
    id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, summary TEXT NOT NULL,
    status TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT NOT NULL);
  CREATE TABLE plans (run_id TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE models (
    fingerprint TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL, recorded_steps INTEGER NOT NULL,
    updated_at TEXT NOT NULL);
)sql";

// Step summaries, so that a run's history outlives the daemon; what GET /v1/models tells of a
// model; the orders in which runs are listed, found and pruned.
constexpr const char* kVersion2 = R"sql(
  CREATE TABLE steps (
    run_id TEXT NOT NULL, step INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (run_id, step)) WITHOUT ROWID;
  ALTER TABLE models ADD COLUMN distinct_shapes INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE models ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
  CREATE INDEX runs_by_start ON runs (started_at);
  CREATE INDEX runs_by_end ON runs (ended_at);
  CREATE INDEX runs_by_name ON runs (name, started_at);
  CREATE INDEX models_by_use ON models (updated_at);
)sql";

// What budget groups have promised.
constexpr const char* kVersion3 = R"sql(
  CREATE TABLE budget_groups (
    name TEXT PRIMARY KEY NOT NULL, total INTEGER NOT NULL, file_total INTEGER NOT NULL);
  CREATE TABLE budget_runs (
    id TEXT PRIMARY KEY NOT NULL, budget_group TEXT NOT NULL, instance TEXT NOT NULL,
    pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, asked INTEGER NOT NULL,
    floor INTEGER NOT NULL, need INTEGER NOT NULL, bound INTEGER NOT NULL, pinned INTEGER NOT NULL,
    need_known INTEGER NOT NULL);
)sql";

// Which runs taught a model: a JSON array of their ids, the latest last.
constexpr const char* kVersion4 = R"sql(
  ALTER TABLE models ADD COLUMN taught_by TEXT NOT NULL DEFAULT '[]';
)sql";

// Marks of the states of a model that runs found to be wrong: a JSON array of numbers.
constexpr const char* kVersion5 = R"sql(
  ALTER TABLE models ADD COLUMN dropped TEXT NOT NULL DEFAULT '[]';
)sql";

constexpr std::array kMigrations{kVersion1, kVersion2, kVersion3, kVersion4, kVersion5};

constexpr std::array kProbes{
    "SELECT id, name, summary, status, started_at, ended_at FROM runs LIMIT 1",
    "SELECT run_id, json FROM plans LIMIT 1",
    "SELECT run_id, step, json FROM steps LIMIT 1",
    "SELECT fingerprint, state, recorded_steps, distinct_shapes, runs, updated_at, taught_by, "
    "dropped FROM models LIMIT 1",
    "SELECT name, total, file_total FROM budget_groups LIMIT 1",
    "SELECT id, budget_group, instance, pid, start_ticks, asked, floor, need, bound, pinned, "
    "need_known FROM budget_runs LIMIT 1",
};

}  // namespace

std::span<const char* const> store_migrations() { return kMigrations; }

std::span<const char* const> store_probes() { return kProbes; }

}  // namespace pudica::daemon
