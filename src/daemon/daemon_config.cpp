#include "daemon/daemon_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <span>

#include <nlohmann/json.hpp>

#include "base/nearest_name.h"
#include "config/json_text.h"

namespace pudica::daemon {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 1U << 20U;
constexpr std::size_t kShownCharacters = 60;
constexpr std::size_t kMaxGroups = 64;

std::string seen(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kShownCharacters) text = text.substr(0, kShownCharacters) + "...";
  return text;
}

bool read_text(const json& value, std::string& out) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) return false;
  out = text;
  return true;
}

struct Range {
  std::int64_t least;
  std::int64_t most;
};

bool read_integer(const json& value, Range range, std::int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    return false;
  }
  const auto number = value.get<std::int64_t>();
  if (number < range.least || number > range.most) return false;
  out = number;
  return true;
}

bool read_seconds(const json& value, Range range, double& out) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!(number >= static_cast<double>(range.least) && number <= static_cast<double>(range.most))) {
    return false;
  }
  out = number;
  return true;
}

bool read_bytes(const json& value, Range range, Bytes& out) {
  std::int64_t count = 0;
  if (value.is_string()) {
    const auto parsed = parse_bytes(value.get_ref<const std::string&>());
    if (!parsed || parsed->count() < range.least || parsed->count() > range.most) return false;
    count = parsed->count();
  } else if (!read_integer(value, range, count)) {
    return false;
  }
  out = Bytes(count);
  return true;
}

bool read_log_level(const json& value, DaemonConfig& config) {
  if (!value.is_string()) return false;
  const auto& level = value.get_ref<const std::string&>();
  if (!is_log_level(level)) return false;
  config.log_level = level;
  return true;
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

bool read_groups(const json& value, DaemonConfig& config) {
  if (!value.is_object() || value.size() > kMaxGroups) return false;
  std::map<std::string, Bytes> groups;
  for (const auto& [name, total] : value.items()) {
    if (name.empty() || !read_bytes(total, {1, kMostBytes}, groups[name])) return false;
  }
  config.groups = std::move(groups);
  return true;
}

struct Key {
  std::string_view path;
  std::string_view expected;
  bool (*read)(const json& value, DaemonConfig& config);
};

constexpr std::array<Key, 15> kKeys{{
    {"socket", "a path; empty for the usual place",
     [](const json& v, DaemonConfig& c) { return read_text(v, c.socket); }},
    {"socket_group", "the name of a group; empty for none",
     [](const json& v, DaemonConfig& c) { return read_text(v, c.socket_group); }},
    {"database", "a path; empty for the usual place",
     [](const json& v, DaemonConfig& c) { return read_text(v, c.database); }},
    {"listen", "ADDRESS:PORT such as 127.0.0.1:9400; empty for none",
     [](const json& v, DaemonConfig& c) { return read_text(v, c.listen); }},
    {"listen_token_file", "a path; empty for none",
     [](const json& v, DaemonConfig& c) { return read_text(v, c.listen_token_file); }},
    {"allow_remote", "true or false",
     [](const json& v, DaemonConfig& c) {
       if (v.is_boolean()) c.allow_remote = v.get<bool>();
       return v.is_boolean();
     }},
    {"log_level", "off, error, warn, info or debug", &read_log_level},
    {"run_timeout_seconds", "a number from 1 to 3600",
     [](const json& v, DaemonConfig& c) {
       return read_seconds(v, {1, 3600}, c.run_timeout_seconds);
     }},
    {"limits.body_bytes", "an integer from 1024 to 67108864",
     [](const json& v, DaemonConfig& c) {
       return read_integer(v, {1024, 67108864}, c.limits.body_bytes);
     }},
    {"limits.runs", "an integer from 1 to 4096",
     [](const json& v, DaemonConfig& c) {
       return read_integer(v, {1, 4096}, c.limits.runs);
     }},
    {"limits.ended_runs", "an integer from 0 to 4096",
     [](const json& v, DaemonConfig& c) {
       return read_integer(v, {0, 4096}, c.limits.ended_runs);
     }},
    {"limits.connections", "an integer from 8 to 16384",
     [](const json& v, DaemonConfig& c) {
       return read_integer(v, {8, 16384}, c.limits.connections);
     }},
    {"limits.request_seconds", "a number from 1 to 600",
     [](const json& v, DaemonConfig& c) {
       return read_seconds(v, {1, 600}, c.limits.request_seconds);
     }},
    {"limits.database_bytes", "bytes from 1MiB, such as 256MiB",
     [](const json& v, DaemonConfig& c) {
       return read_bytes(v, {std::int64_t{1} << 20, kMostBytes}, c.limits.database_bytes);
     }},
    {"groups", "an object of totals by name, such as {\"gpu0\": \"40GiB\"}, of at most 64 names",
     &read_groups},
}};

class Reader {
 public:
  explicit Reader(std::string_view source_name) : source_name_(source_name) {}

  void read(const json& root) {
    if (!root.is_object()) {
      fail("top level: " + seen(root) + ", expected an object");
      return;
    }
    for (const auto& [name, value] : root.items()) {
      if (name != "limits") {
        read_key(name, value);
      } else if (!value.is_object()) {
        fail("limits: " + seen(value) + ", expected an object");
      } else {
        for (const auto& [inner, limit] : value.items()) read_key("limits." + inner, limit);
      }
    }
  }

  void fail(const std::string& message) {
    parsed_.errors.push_back(std::string(source_name_) + ": " + message);
  }

  ParsedDaemonConfig take() { return std::move(parsed_); }

 private:
  void read_key(const std::string& path, const json& value) {
    const auto* const key = std::ranges::find(kKeys, path, &Key::path);
    if (key == kKeys.end()) {
      const std::vector<std::string> known = daemon_config_keys();
      fail(path.substr(0, kShownCharacters) + ": unknown key (value " + seen(value) +
           "); the nearest known key is " + nearest(path, known));
    } else if (!key->read(value, parsed_.config)) {
      fail(path + ": " + seen(value) + ", expected " + std::string(key->expected));
    }
  }

  static std::string nearest(const std::string& path, const std::vector<std::string>& known) {
    const std::string cut = path.substr(0, kShownCharacters);
    const auto leaf = [](const std::string& whole) { return whole.substr(whole.rfind('.') + 1); };
    return *std::ranges::min_element(known, {}, [&](const std::string& name) {
      return std::min(edit_distance(cut, name), edit_distance(leaf(cut), leaf(name)));
    });
  }

  std::string_view source_name_;
  ParsedDaemonConfig parsed_;
};

}  // namespace

Result<DaemonConfig> ParsedDaemonConfig::result() const {
  if (errors.empty()) return config;
  std::string message;
  for (const std::string& error : errors) message += (message.empty() ? "" : "\n") + error;
  return invalid_argument(message);
}

ParsedDaemonConfig parse_daemon_config(std::string_view text, std::string_view source_name) {
  Reader reader(source_name);
  const config::JsonText json_text = config::read_json(text);
  for (const std::string& error : json_text.errors) reader.fail(error);
  if (json_text.value) reader.read(*json_text.value);
  return reader.take();
}

ParsedDaemonConfig load_daemon_config(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return {{}, {name + ": cannot be read, expected a JSON file"}};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return {{}, {name + ": larger than 1 MiB, expected a configuration file"}};
  }
  return parse_daemon_config(text, name);
}

bool is_log_level(std::string_view level) {
  constexpr std::array<std::string_view, 5> kLevels{"off", "error", "warn", "info", "debug"};
  return std::ranges::find(kLevels, level) != kLevels.end();
}

std::vector<std::string> daemon_config_keys() {
  std::vector<std::string> out;
  for (const Key& key : kKeys) out.emplace_back(key.path);
  return out;
}

}  // namespace pudica::daemon
