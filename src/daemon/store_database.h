// StoreDatabase: one connection to the store's file, opened whatever state the file is in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/store.h"
#include "daemon/store_limits.h"
#include "daemon/stored_groups.h"
#include "pudica/result.h"

namespace SQLite {
class Database;
class Exception;
class Statement;
}  // namespace SQLite

namespace pudica::daemon {

// What an exception of SQLite means for the caller.
Error store_error(std::string_view what, const SQLite::Exception& error);

// Its members throw SQLite::Exception; only store*.cpp use it. Not thread-safe.
class StoreDatabase {
 public:
  // Errors: as Store::open.
  static Result<std::unique_ptr<StoreDatabase>> open(const StoreOptions& options);
  ~StoreDatabase();
  StoreDatabase(const StoreDatabase&) = delete;
  StoreDatabase& operator=(const StoreDatabase&) = delete;

  // Compiled once; comes back without bindings and at its start.
  SQLite::Statement& prepared(const char* sql);
  void execute(const char* sql);
  std::int64_t number(const char* sql);
  std::int64_t page_bytes();
  [[nodiscard]] std::int64_t schema_version() const { return schema_version_; }

  // Moves the file of a closed database and its journal to `<path>.corrupt-<time>`.
  static Result<void> move_aside(const std::string& path, std::string_view reason);

 private:
  explicit StoreDatabase(const StoreOptions& options);

  // Refuses a file that is not to be touched, before anything is written to it.
  Result<void> identify();
  void configure(const StoreOptions& options);
  void verify();
  void migrate();

  std::unique_ptr<SQLite::Database> database_;
  std::map<std::string_view, std::unique_ptr<SQLite::Statement>> statements_;  // by literal
  std::int64_t schema_version_ = 0;
};

// A statement in use: reset when it goes, so that it holds no lock and no text of its caller.
class StoreQuery {
 public:
  StoreQuery(StoreDatabase& database, const char* sql) : statement_(database.prepared(sql)) {}
  ~StoreQuery();
  StoreQuery(const StoreQuery&) = delete;
  StoreQuery& operator=(const StoreQuery&) = delete;

  // Binds the next parameter. The text must outlive the query.
  StoreQuery& with(const std::string& text);
  StoreQuery& with(std::int64_t number);
  // True: a row is there to be read.
  bool next();
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] std::int64_t number(int column) const;
  // Runs a statement without rows and makes it ready for other parameters. Returns rows changed.
  std::int64_t run();

 private:
  SQLite::Statement& statement_;
  int bound_ = 0;
};

// Store::prune without its lock: throws SQLite::Exception. So do the following.
void prune_database(StoreDatabase& database, const StoreOptions& options,
                    const StoreLimits& limits);
// Rows of runs that went, with all that is theirs.
std::int64_t remove_ended_runs(StoreDatabase& database, const std::string& until);
std::int64_t used_bytes(StoreDatabase& database);
void bound_size(StoreDatabase& database, const StoreOptions& options);
StoredGroups read_groups(StoreDatabase& database);
void write_groups(StoreDatabase& database, const StoredGroupChanges& changes);

}  // namespace pudica::daemon
