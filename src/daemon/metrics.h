// The Prometheus text format, 0.0.4.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/budget_groups.h"
#include "daemon/run_state.h"

namespace pudica::daemon {

// What the daemon counts of itself.
struct DaemonMetrics {
  std::string version;
  double uptime_seconds = 0;
  std::map<int, std::int64_t> answers;  // by status
  std::int64_t events = 0;
  std::int64_t runs_registered = 0;
  std::int64_t open_connections = 0;
  std::int64_t models = 0;
  std::int64_t database_bytes = 0;
  std::int64_t written = 0;
  std::int64_t dropped_writes = 0;
};

// `runs` are the live ones: one that ended or was lost leaves. Of the `lost` ones the state is
// told.
std::string to_prometheus(const DaemonMetrics& daemon, const std::vector<RunSummary>& runs,
                          const std::vector<RunSummary>& lost,
                          const std::vector<GroupView>& groups);

// Backslash, quote and line end escaped; bytes that are not UTF-8 replaced.
std::string escape_label(const std::string& text);

}  // namespace pudica::daemon
