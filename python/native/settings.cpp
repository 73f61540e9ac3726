#include "native/settings.h"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace pudica::python {
namespace {

using nlohmann::json;

Config read_config(const std::string& path) {
  Config config;
  if (!path.empty()) {
    auto loaded = load_config(path).result();
    if (!loaded) throw std::runtime_error("config: " + loaded.error().message);
    config = std::move(*loaded);
  }
  const ConfigErrors errors = apply_environment(process_environment, config);
  if (!errors.empty()) throw std::runtime_error("config: " + errors.front());
  return config;
}

json to_json(const BudgetSetting& budget) {
  switch (budget.kind) {
    case BudgetSetting::Kind::kBytes:
      return {{"kind", "bytes"}, {"bytes", budget.bytes.count()}};
    case BudgetSetting::Kind::kFraction:
      return {{"kind", "fraction"}, {"fraction", budget.fraction}};
    case BudgetSetting::Kind::kBetween:
      return {{"kind", "between"}, {"fraction", budget.fraction}};
    case BudgetSetting::Kind::kAuto:
      break;
  }
  return {{"kind", "auto"}};
}

}  // namespace

Settings read_settings(const std::string& text) {
  const json given = json::parse(text);
  Settings settings;
  settings.config = read_config(given.at("config").get<std::string>());
  settings.budget_bytes = Bytes(given.at("budget_bytes").get<std::int64_t>());
  const json& fraction = given.at("budget_fraction");
  if (!fraction.is_null()) settings.budget_fraction = fraction.get<double>();
  settings.enforcement = given.at("hard").get<bool>() ? Enforcement::kHard : Enforcement::kSoft;
  settings.device = given.at("device").get<std::string>();
  const json& daemon = given.at("daemon");
  settings.daemon = daemon.is_null() ? settings.config.daemon.enabled : daemon.get<bool>();
  settings.name = given.at("name").get<std::string>();
  settings.model = given.at("model").get<std::string>();
  settings.fingerprint = given.at("fingerprint").get<std::string>();
  const json& policy = given.at("policy");
  settings.policy_given = !policy.is_null();
  if (settings.policy_given) settings.config.policy = policy.get<std::string>();
  const json& clock = given.at("clock");
  if (clock == "operators") {
    settings.clock = operator_clock();
  } else if (!clock.is_null()) {
    throw std::runtime_error("clock: " + clock.dump() + ", expected null or operators");
  }
  set_log_level(settings.config.log.level);
  return settings;
}

std::string configured(const std::string& config_path) {
  const Config config = read_config(config_path);
  json out = to_json(config.budget);
  out["state_file"] = config.state_file;
  return out.dump();
}

std::string read_budget(const std::string& text) {
  const auto budget = parse_budget(text);
  if (!budget) throw std::runtime_error("budget: " + budget.error().message);
  return to_json(*budget).dump();
}

}  // namespace pudica::python
