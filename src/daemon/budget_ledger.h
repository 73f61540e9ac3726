// Keeps what budget groups have promised, so that the daemon after this one knows of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/archive.h"
#include "daemon/stored_groups.h"

namespace pudica::daemon {

// Every promise is kept before it is given. Not thread-safe.
class BudgetLedger {
 public:
  explicit BudgetLedger(Archive& archive) : archive_(archive) {}

  // What the daemon before this one kept; nothing, with a line in the log, where that cannot be
  // read.
  StoredGroups read();
  // Whether a daemon that began now would know all of it, but for needs.
  [[nodiscard]] bool covers(const StoredGroups& now) const;
  // Keeps it. False: that failed (a line in the log, the first time); covers() tells what is not
  // kept.
  bool write(const StoredGroups& now);
  // The most that the run may be using, as far as kept; 0: nothing is.
  [[nodiscard]] std::int64_t kept_bytes(const std::string& run) const;

 private:
  [[nodiscard]] StoredGroupChanges changes_to(const StoredGroups& now) const;
  void note(const StoredGroups& kept);

  Archive& archive_;
  std::int64_t replacements_ = 0;  // of the file, seen so far
  std::map<std::string, StoredGroup> groups_;
  std::map<std::string, StoredGroupRun> runs_;
  bool failing_ = false;
};

}  // namespace pudica::daemon
