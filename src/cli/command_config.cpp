// `pudica config check`, `pudica config show`.
#include <fstream>
#include <ostream>
#include <sstream>
#include <utility>

#include "cli/commands.h"
#include "cli/table.h"
#include "config/config.h"
#include "policy/policy_spec.h"

namespace pudica::cli {
namespace {

struct Variable {
  const char* name;
  std::string_view path;
};
// As apply_environment() knows them; a test keeps the two in step.
constexpr Variable kVariables[] = {{"PUDICA_BUDGET", "budget"},
                                   {"PUDICA_SOCKET", "daemon.socket"},
                                   {"PUDICA_GROUP", "daemon.group"},
                                   {"PUDICA_LOG", "log.level"}};

// Every error, one a line.
int report_errors(Session& session, const ConfigErrors& errors) {
  if (session.arguments.json) {
    print_json(session, {{"ok", false}, {"errors", errors}});
    return kExitUsage;
  }
  for (const std::string& error : errors) {
    session.err << painted("pudica:", Colour::kRed, session.error_style) << ' '
                << sanitised(error, session.error_style) << '\n';
  }
  return kExitUsage;
}

// One key: its path, its value as JSON and where that comes from.
Json origin_of(const ConfigKey& key, const Json& file, const std::string& path) {
  Json entry{{"key", key.path}, {"value", Json::parse(key.default_json)}, {"from", "default"}};
  if (const Json* const value = find(file, key.path)) {
    entry["value"] = *value;
    entry["from"] = path;
  }
  for (const Variable& variable : kVariables) {
    if (variable.path != key.path) continue;
    const auto value = process_environment(variable.name);
    if (!value || value->empty()) continue;
    entry["value"] = *value;
    entry["from"] = variable.name;
  }
  return entry;
}

int print_origins(Session& session, const std::string& path) {
  Json file = Json::object();
  if (!path.empty()) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream content;
    content << in.rdbuf();
    file = Json::parse(content.str(), nullptr, false);
  }
  Json entries = Json::array();
  for (const ConfigKey& key : config_keys()) entries.push_back(origin_of(key, file, path));
  if (session.arguments.json) {
    return print_json(session, {{"ok", true},
                                {"file", path.empty() ? Json() : Json(path)},
                                {"values", std::move(entries)}});
  }
  std::vector<const Json*> rows;
  for (const Json& entry : entries) rows.push_back(&entry);
  if (!session.style.terminal) {
    print_fields(session.out, {"key", "value", "from"}, rows);
    return kExitDone;
  }
  Table table({{"KEY"}, {"VALUE", false, true}, {"FROM", false, true}});
  for (const Json& entry : entries) {
    const std::string from = text(entry, "from");
    const Colour colour = from == "default" ? Colour::kDim : Colour::kNone;
    table.add({{text(entry, "key")},
               {sanitised(dump(entry["value"]), session.style), colour},
               {sanitised(from, session.style), colour}});
  }
  table.print(session.out, session.style);
  return kExitDone;
}

// What a start refuses beyond what the text of the file tells. Operators that torch does not know
// and files that cannot be written are left to the start.
ConfigErrors start_faults(const Config& config, const std::string& source) {
  constexpr std::size_t kMostSocketPath = 107;  // of Linux, its end aside
  // Of tests, beside those of policy_names(): python/native/random_policy.h.
  constexpr std::string_view kRandom = "random";
  ConfigErrors errors;
  if (!config.policy.starts_with(kRandom)) {
    const auto spec = parse_policy_spec(config.policy);
    if (!spec) errors.push_back(source + ": policy: " + spec.error().message);
  }
  if (config.daemon.socket.size() > kMostSocketPath) {
    errors.push_back(source + ": daemon.socket: a path of " +
                     std::to_string(config.daemon.socket.size()) +
                     " characters, expected at most " + std::to_string(kMostSocketPath));
  }
  return errors;
}

int check_and_print(Session& session, const std::string& path) {
  ParsedConfig parsed;
  if (!path.empty()) parsed = load_config(path);
  ConfigErrors errors = parsed.errors;
  for (const std::string& error : apply_environment(process_environment, parsed.config)) {
    errors.push_back(error);
  }
  const std::string source = path.empty() ? "environment" : path;
  for (const std::string& error : start_faults(parsed.config, source)) errors.push_back(error);
  if (!errors.empty()) return report_errors(session, errors);
  return print_origins(session, path);
}

}  // namespace

int config_check_command(Session& session) {
  return check_and_print(session, session.arguments.file);
}

int config_show_command(Session& session) {
  std::string path = session.arguments.config;
  if (path.empty()) path = process_environment("PUDICA_CONFIG").value_or("");
  return check_and_print(session, path);
}

}  // namespace pudica::cli
