#include "daemon/store_database.h"

#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Exception.h>
#include <SQLiteCpp/Statement.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "daemon/private_directory.h"
#include "daemon/store_limits.h"
#include "daemon/store_schema.h"

namespace pudica::daemon {
namespace {

namespace fs = std::filesystem;

// SQLite's result codes (sqlite.org/rescode.html).
constexpr int kSqliteReadOnly = 8;
constexpr int kSqliteCorrupt = 11;
constexpr int kSqliteFull = 13;
constexpr int kSqliteNotADatabase = 26;
constexpr int kSqliteShortRead = 522;
// What is no property of the file: permission, busy, locked, no memory, interrupted, input or
// output, full, cannot open.
constexpr std::array kSqliteSurroundings{3, 5, 6, 7, 9, 10, 13, 14};

constexpr std::size_t kMostDamagedFilesKept = 3;

Error unavailable(const std::string& path, const std::string& why) {
  return {ErrorCode::kUnavailable, "database '" + path + "': " + why};
}

std::string system_error() { return std::strerror(errno); }

Result<void> make_file(const std::string& path) {
  const fs::path directory = fs::path(path).parent_path();
  if (!directory.empty()) {
    auto made = make_private_directories(directory);
    if (!made) return made;
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return unavailable(path, "cannot open: " + system_error());
  struct stat status {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const bool ours = regular && ::fchmod(file, S_IRUSR | S_IWUSR) == 0;
  const Error refused =
      unavailable(path, regular ? "cannot set mode 0600: " + system_error() : "not a regular file");
  ::close(file);
  return ours ? Result<void>() : refused;
}

bool is_damage(const SQLite::Exception& error, const std::string& path) {
  if (error.getExtendedErrorCode() == kSqliteShortRead) return true;
  const int code = error.getErrorCode() & 0xff;
  // A damaged header may claim a version of the format that SQLite only reads.
  if (code == kSqliteReadOnly) return ::access(path.c_str(), W_OK) == 0;
  return std::ranges::find(kSqliteSurroundings, code) == kSqliteSurroundings.end();
}

[[noreturn]] void throw_damaged(const std::string& what) {
  throw SQLite::Exception(what, kSqliteCorrupt);
}

std::string time_for_name() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts);
  return {text.data(), length};
}

// Evidence of the last few is enough: a failing disk must not fill up with it.
void remove_older_damaged(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".corrupt-";
  std::vector<std::string> found;
  std::error_code failed;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && !name.ends_with("-wal")) found.push_back(name);
  }
  std::ranges::sort(found);
  for (std::size_t i = 0; i + kMostDamagedFilesKept < found.size(); ++i) {
    fs::remove(directory / found[i], failed);
    fs::remove(directory / (found[i] + "-wal"), failed);
  }
}

}  // namespace

Error store_error(std::string_view what, const SQLite::Exception& error) {
  const int code = error.getErrorCode() & 0xff;
  const std::string message = std::string(what) + ": " + error.what();
  if (code == kSqliteCorrupt || code == kSqliteNotADatabase) return {ErrorCode::kCorrupt, message};
  if (code == kSqliteFull) return {ErrorCode::kOverBudget, message};
  return {ErrorCode::kUnavailable, message};
}

Result<std::unique_ptr<StoreDatabase>> StoreDatabase::open(const StoreOptions& options) {
  for (const bool last : {false, true}) {
    auto made = make_file(options.path);
    if (!made) return made.error();
    std::string reason;
    try {
      std::unique_ptr<StoreDatabase> opened(new StoreDatabase(options));
      auto known = opened->identify();
      if (!known) return known.error();
      opened->configure(options);
      opened->migrate();
      opened->verify();
      bound_size(*opened, options);
      return opened;
    } catch (const SQLite::Exception& error) {
      reason = error.what();
      if (last || !is_damage(error, options.path)) return unavailable(options.path, reason);
    }
    auto moved = move_aside(options.path, reason);
    if (!moved) return moved.error();
  }
  return unavailable(options.path, "cannot be opened");
}

StoreDatabase::StoreDatabase(const StoreOptions& options)
    : database_(std::make_unique<SQLite::Database>(options.path, SQLite::OPEN_READWRITE,
                                                   options.busy_timeout_ms)) {}

StoreDatabase::~StoreDatabase() { statements_.clear(); }

Result<void> StoreDatabase::move_aside(const std::string& path, std::string_view reason) {
  const std::string base = path + ".corrupt-" + time_for_name();
  std::string target = base;
  for (int i = 2; fs::exists(target); ++i) target = base + "-" + std::to_string(i);
  if (std::rename(path.c_str(), target.c_str()) != 0) {
    return unavailable(path, "damaged (" + std::string(reason) +
                                 "), and cannot be moved aside: " + system_error());
  }
  // A journal left behind would be played into the new file.
  std::rename((path + "-wal").c_str(), (target + "-wal").c_str());
  ::unlink((path + "-shm").c_str());
  ::unlink((path + "-journal").c_str());
  log_warn("database '" + path + "' is damaged (" + std::string(reason) + "): moved to '" + target +
           "', an empty one is begun");
  remove_older_damaged(path);
  return {};
}

Result<void> StoreDatabase::identify() {
  if (number("SELECT COUNT(*) FROM sqlite_master") == 0) return {};
  const bool marked = number("PRAGMA application_id") == kStoreApplicationId;
  const std::int64_t tables =
      number("SELECT COUNT(*) FROM sqlite_master WHERE name IN ('meta', 'runs', 'models')");
  if (!marked && tables < 3) {
    return unavailable(database_->getFilename(), "it is the database of another program");
  }
  const std::int64_t version = number("SELECT value FROM meta WHERE key = 'schema'");
  const auto newest = static_cast<std::int64_t>(store_migrations().size());
  if (version < 0) throw_damaged("schema version " + std::to_string(version));
  if (version <= newest) return {};
  return invalid_argument("database '" + database_->getFilename() + "' has schema version " +
                          std::to_string(version) + ", this program knows versions up to " +
                          std::to_string(newest) + ": it was written by a newer one");
}

void StoreDatabase::configure(const StoreOptions& options) {
  // Of use only before the first table, and so before the journal's first page.
  if (number("PRAGMA auto_vacuum") != 2) execute("PRAGMA auto_vacuum = INCREMENTAL");
  execute("PRAGMA journal_mode = WAL");
  execute("PRAGMA synchronous = NORMAL");
  // A commit of 200 busy runs touches more than the 2 MiB that the library caches by default, and a
  // run's last page is written again by every commit: one copy of it in four is enough in the file.
  execute("PRAGMA cache_size = -8192");
  const std::int64_t journal = StoreLimits(options.max_bytes).journal_bytes;
  execute(("PRAGMA journal_size_limit = " + std::to_string(journal)).c_str());
  execute(("PRAGMA wal_autocheckpoint = " + std::to_string(journal / page_bytes())).c_str());
  if (number("PRAGMA auto_vacuum") != 2) {
    execute("PRAGMA auto_vacuum = INCREMENTAL");
    execute("VACUUM");
  }
  if (number("PRAGMA application_id") != kStoreApplicationId) {
    execute(("PRAGMA application_id = " + std::to_string(kStoreApplicationId)).c_str());
  }
  SQLite::Statement check(*database_, "PRAGMA quick_check(1)");
  if (!check.executeStep()) throw_damaged("quick_check says nothing");
  const std::string said = check.getColumn(0).getString();
  if (said != "ok") throw_damaged(said);
}

void StoreDatabase::migrate() {
  const auto migrations = store_migrations();
  const auto newest = static_cast<std::int64_t>(migrations.size());
  execute("BEGIN IMMEDIATE");
  execute(
      "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL)");
  const std::int64_t version = number("SELECT value FROM meta WHERE key = 'schema'");
  for (std::int64_t i = version; i < newest; ++i) execute(migrations[static_cast<std::size_t>(i)]);
  StoreQuery(*this, "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema', ?)")
      .with(newest)
      .run();
  execute("COMMIT");
  schema_version_ = newest;
  if (version > 0 && version < newest) {
    log_info("database '" + database_->getFilename() + "': schema version " +
             std::to_string(version) + " became " + std::to_string(newest));
  }
}

void StoreDatabase::verify() {
  for (const char* probe : store_probes()) {
    SQLite::Statement statement(*database_, probe);
    statement.executeStep();
  }
}

// A file that is larger already keeps its size until it is pruned.
void bound_size(StoreDatabase& database, const StoreOptions& options) {
  const std::int64_t pages = StoreLimits(options.max_bytes).file_bytes / database.page_bytes();
  database.execute(("PRAGMA max_page_count = " + std::to_string(pages)).c_str());
}

SQLite::Statement& StoreDatabase::prepared(const char* sql) {
  auto& statement = statements_[sql];
  if (!statement) {
    statement = std::make_unique<SQLite::Statement>(*database_, sql);
  } else {
    statement->tryReset();
    statement->clearBindings();
  }
  return *statement;
}

std::int64_t StoreDatabase::page_bytes() {
  return std::max<std::int64_t>(512, number("PRAGMA page_size"));
}

void StoreDatabase::execute(const char* sql) { database_->exec(sql); }

std::int64_t StoreDatabase::number(const char* sql) {
  SQLite::Statement statement(*database_, sql);
  return statement.executeStep() ? statement.getColumn(0).getInt64() : 0;
}

StoreQuery::~StoreQuery() { statement_.tryReset(); }

StoreQuery& StoreQuery::with(const std::string& text) {
  statement_.bindNoCopy(++bound_, text);
  return *this;
}

StoreQuery& StoreQuery::with(std::int64_t number) {
  statement_.bind(++bound_, number);
  return *this;
}

bool StoreQuery::next() { return statement_.executeStep(); }

std::string StoreQuery::text(int column) const { return statement_.getColumn(column).getString(); }

std::int64_t StoreQuery::number(int column) const {
  return statement_.getColumn(column).getInt64();
}

std::int64_t StoreQuery::run() {
  const int changed = statement_.exec();
  statement_.reset();
  bound_ = 0;
  return changed;
}

}  // namespace pudica::daemon
