// The daemon's configuration file: JSON text -> validated plain struct. docs/daemon.md lists it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct DaemonConfig {
  struct Limits {
    std::int64_t body_bytes = std::int64_t{4} << 20;
    std::int64_t runs = 512;
    std::int64_t ended_runs = 64;
    std::int64_t connections = 1024;
    double request_seconds = 30;
    Bytes database_bytes{std::int64_t{256} << 20};
    bool operator==(const Limits&) const = default;
  };

  std::string socket;             // empty: the usual place
  std::string socket_group;       // empty: none
  std::string database;           // empty: the usual place
  std::string listen;             // empty: no TCP
  std::string listen_token_file;  // empty: none
  bool allow_remote = false;
  std::string log_level = "info";
  double run_timeout_seconds = 15;
  Limits limits;
  std::map<std::string, Bytes> groups;  // name -> total

  bool operator==(const DaemonConfig&) const = default;
};

// What is wrong, one message an error: source, key, value seen, value expected.
struct ParsedDaemonConfig {
  DaemonConfig config;
  std::vector<std::string> errors;  // with any, the config is not to be used

  [[nodiscard]] Result<DaemonConfig> result() const;
};

// Reads the whole text and reports every error in it. `source_name` goes in front of each. Unknown
// keys are refused with the nearest known one, repeated keys too.
ParsedDaemonConfig parse_daemon_config(std::string_view text, std::string_view source_name);
// Reads a file of at most 1 MiB.
ParsedDaemonConfig load_daemon_config(const std::filesystem::path& path);

// off, error, warn, info or debug.
bool is_log_level(std::string_view level);

// Every key as documentation and the sample file must name it.
std::vector<std::string> daemon_config_keys();

}  // namespace pudica::daemon
