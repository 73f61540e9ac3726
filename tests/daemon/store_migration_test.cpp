// Files of other versions of the schema, and of other programs.
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>

#include "daemon/store_schema.h"
#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

// The file that version 1 wrote, by hand: not from the program's own list of migrations.
constexpr const char* kVersion1File = R"sql(
  CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL);
  INSERT INTO meta VALUES ('schema', 1);
  CREATE TABLE runs (
    id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, summary TEXT NOT NULL,
    status TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT NOT NULL);
  CREATE TABLE plans (run_id TEXT PRIMARY KEY NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
  CREATE TABLE models (
    fingerprint TEXT PRIMARY KEY NOT NULL, state TEXT NOT NULL, recorded_steps INTEGER NOT NULL,
    updated_at TEXT NOT NULL);
  INSERT INTO runs VALUES ('r1', 'train', '{}', 'ok', '2026-01-01T00:00:01Z', '');
  INSERT INTO plans VALUES ('r1', '[]');
  INSERT INTO models VALUES ('f1', 'learned', 7, '2026-01-01T00:00:02Z');
)sql";

void write_database(const std::string& path, const std::string& sql) {
  SQLite::Database database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  database.exec(sql);
}

TEST(StoreMigration, Version1BecomesTheNewestWithItsRows) {
  const TemporaryFolder folder;
  write_database(folder.file("store.db"), kVersion1File);
  for (int times = 0; times < 2; ++times) {
    const auto store = open_store(folder.file("store.db"));
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store_migrations().size()));
    EXPECT_TRUE(store->groups()->runs.empty());
    EXPECT_EQ(store->run("r1")->name, "train");
    EXPECT_EQ(*store->plans("r1"), "[]");
    const auto model = store->model("f1");
    ASSERT_TRUE(model);
    EXPECT_EQ(model->state, "learned");
    EXPECT_EQ(model->recorded_steps, 7);
    EXPECT_EQ(model->distinct_shapes, 0);  // version 1 did not know
    EXPECT_EQ(model->dropped, "[]");       // nor of states that were dropped
    EXPECT_TRUE(store->add_steps("r1", steps_from(0, 3)));
    EXPECT_EQ(store->steps("r1", 9)->size(), 3U);
  }
  EXPECT_TRUE(folder.names_with("corrupt").empty());
  SQLite::Database database(folder.file("store.db"));
  EXPECT_EQ(database.execAndGet("PRAGMA auto_vacuum").getInt(), 2);
}

TEST(StoreMigration, ANewFileGoesThroughAllVersions) {
  const TemporaryFolder folder;
  const auto store = open_store(folder.file("store.db"));
  EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store_migrations().size()));
}

TEST(StoreMigration, RefusesANewerSchemaAndNamesBothVersions) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store.db");
  { ASSERT_NE(open_store(path), nullptr); }
  write_database(path, "UPDATE meta SET value = 41 WHERE key = 'schema'");
  const std::string before = read_file(path);
  StoreOptions options;
  options.path = path;
  const auto opened = Store::open(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(opened.error().message.find("41"), std::string::npos) << opened.error().message;
  const std::string newest = "up to " + std::to_string(store_migrations().size());
  EXPECT_NE(opened.error().message.find(newest), std::string::npos) << opened.error().message;
  EXPECT_TRUE(folder.names_with("corrupt").empty());
  EXPECT_TRUE(read_file(path) == before);  // compared, not printed
}

TEST(StoreMigration, LeavesTheDatabaseOfAnotherProgramAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.file("other.db");
  write_database(path, "CREATE TABLE songs (title TEXT); INSERT INTO songs VALUES ('a')");
  const std::string before = read_file(path);
  StoreOptions options;
  options.path = path;
  const auto opened = Store::open(options);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("another program"), std::string::npos);
  EXPECT_TRUE(read_file(path) == before);  // compared, not printed
}

TEST(StoreMigration, AVersionBelowZeroIsDamage) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store.db");
  { ASSERT_NE(open_store(path), nullptr); }
  write_database(path, "UPDATE meta SET value = -1 WHERE key = 'schema'");
  ASSERT_NE(open_store(path), nullptr);
  EXPECT_EQ(folder.names_with("corrupt").size(), 1U);
}

}  // namespace
}  // namespace pudica::daemon::testing
