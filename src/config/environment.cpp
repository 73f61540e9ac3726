#include <cstdlib>

#include "config/config.h"
#include "config/keys.h"

namespace pudica {

std::optional<std::string> process_environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

ConfigErrors apply_environment(const EnvironmentLookup& lookup, Config& config) {
  struct Variable {
    const char* name;
    std::string_view path;
  };
  constexpr Variable kVariables[] = {{"PUDICA_BUDGET", "budget"},
                                     {"PUDICA_SOCKET", "daemon.socket"},
                                     {"PUDICA_GROUP", "daemon.group"},
                                     {"PUDICA_LOG", "log.level"}};
  ConfigErrors errors;
  for (const Variable& variable : kVariables) {
    const auto text = lookup(variable.name);
    if (!text || text->empty()) continue;
    for (const config::Key& key : config::keys()) {
      if (key.path != variable.path || key.read(nlohmann::json(*text), config)) continue;
      errors.push_back(std::string(variable.name) + ": \"" + *text + "\", " +
                       config::expected_of(key));
    }
  }
  return errors;
}

}  // namespace pudica
