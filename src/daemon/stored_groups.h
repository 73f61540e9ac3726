// Budget groups as the store keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pudica::daemon {

struct StoredGroup {
  std::string name;
  std::optional<std::int64_t> total_bytes;
  std::optional<std::int64_t> file_total_bytes;  // what the configuration file said last

  bool operator==(const StoredGroup&) const = default;
};

struct StoredGroupRun {
  std::string id;
  std::string group;
  std::string instance;  // what the run calls itself; empty: nothing
  std::int64_t pid = 0;
  std::optional<std::int64_t> start_ticks;  // of its process, where that could be seen
  std::int64_t asked_bytes = 0;
  std::int64_t floor_bytes = 0;
  std::int64_t need_bytes = 0;
  std::int64_t bound_bytes = 0;  // the most that it may be using
  bool pinned = false;           // asked for by an operator
  bool need_known = false;       // it has reported for long enough

  bool operator==(const StoredGroupRun&) const = default;
};

struct StoredGroups {
  std::vector<StoredGroup> groups;
  std::vector<StoredGroupRun> runs;  // in the order in which they joined
};

struct StoredGroupChanges {
  StoredGroups saved;                       // inserted or replaced
  std::vector<std::string> removed_groups;  // names
  std::vector<std::string> removed_runs;    // ids

  [[nodiscard]] bool empty() const {
    return saved.groups.empty() && saved.runs.empty() && removed_groups.empty() &&
           removed_runs.empty();
  }
};

}  // namespace pudica::daemon
