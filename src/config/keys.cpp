#include "config/keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace pudica::config {
namespace {

using nlohmann::json;

struct IntegerRange {
  std::int64_t least;
  std::int64_t most;
};

bool read_integer(const json& value, IntegerRange range, std::int64_t& out) {
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

// Numbers of the half-open interval (above, most].
struct OpenRange {
  double above;
  double most;
};

bool read_number(const json& value, OpenRange range, double& out) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  if (!(number > range.above) || !(number <= range.most)) return false;
  out = number;
  return true;
}

bool read_text(const json& value, std::string& out) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) return false;
  out = text;
  return true;
}

bool read_warmup_mode(const json& value, Config& config) {
  if (value == "revocable") {
    config.warmup.mode = WarmupMode::kRevocable;
  } else if (value == "sheltered") {
    config.warmup.mode = WarmupMode::kSheltered;
  } else {
    return false;
  }
  return true;
}

std::optional<Mode::Kind> kind_named(const json& name) {
  if (name == "keep") return Mode::Kind::kKeep;
  if (name == "selective") return Mode::Kind::kSelective;
  if (name == "offload") return Mode::Kind::kOffload;
  if (name == "full") return Mode::Kind::kFull;
  return std::nullopt;
}

bool read_menu(const json& value, Config& config) {
  if (!value.is_array() || value.empty()) return false;
  std::vector<Mode::Kind> menu;
  for (const json& name : value) {
    const auto kind = kind_named(name);
    if (!kind || std::ranges::find(menu, *kind) != menu.end()) return false;
    menu.push_back(*kind);
  }
  config.planner.menu = std::move(menu);
  return true;
}

// "addmm", "aten::addmm", "_scaled_dot_product_*"
bool is_operator_name(std::string_view text) {
  if (text.ends_with('*')) text.remove_suffix(1);
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
  });
}

bool read_operators(const json& value, std::vector<std::string>& out) {
  if (!value.is_array()) return false;
  std::vector<std::string> names;
  for (const json& name : value) {
    if (!name.is_string()) return false;
    names.push_back(name.get<std::string>());
    if (names.back().empty() || !is_operator_name(names.back())) return false;
  }
  out = std::move(names);
  return true;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// name[:key=value]...; which names and keys exist is known to the policies, not here.
bool read_policy(const json& value, Config& config) {
  if (!value.is_string()) return false;
  const std::string_view text = value.get_ref<const std::string&>();
  if (text.find(',') != std::string_view::npos) return false;
  std::size_t begin = 0;
  for (bool first = true; begin <= text.size(); first = false) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    const bool has_value = equals != std::string_view::npos && equals + 1 < part.size();
    if (!is_word(part.substr(0, equals)) || first == has_value) return false;
    if (first && equals != std::string_view::npos) return false;
    begin = end + 1;
  }
  config.policy = text;
  return true;
}

constexpr std::array<std::string_view, 5> kLogLevels{"off", "error", "warn", "info", "debug"};

constexpr std::array<Key, 20> kKeys{{
    {"budget", "string or number",
     "auto, bytes (600MiB, 4096), a fraction from 0.0 to 1.0, or between(F) with F from 0 to 1",
     "bytes", "\"auto\"", &read_budget},
    {"warmup.mode", "string", "revocable or sheltered", "", "\"revocable\"", &read_warmup_mode},
    {"warmup.min_steps", "integer", "1 to 1000", "steps", "2",
     [](const json& v, Config& c) {
       return read_integer(v, {1, 1000}, c.warmup.min_steps);
     }},
    {"warmup.max_steps", "integer", "1 to 100000", "steps", "30",
     [](const json& v, Config& c) {
       return read_integer(v, {1, 100000}, c.warmup.max_steps);
     }},
    {"warmup.fit_error", "number", "above 0, to 1", "share of the peak", "0.01",
     [](const json& v, Config& c) {
       return read_number(v, {0, 1}, c.warmup.fit_error);
     }},
    {"predictor.forgetting", "number", "above 0.9, to 1", "share a sample", "1.0",
     [](const json& v, Config& c) {
       return read_number(v, {0.9, 1}, c.predictor.forgetting);
     }},
    {"predictor.max_samples_per_segment", "integer", "4 to 4096", "samples", "64",
     [](const json& v, Config& c) {
       return read_integer(v, {4, 4096}, c.predictor.max_samples_per_segment);
     }},
    {"planner.menu", "list of strings", "one or more of keep, selective, offload, full; each once",
     "", R"(["keep","selective","full"])", &read_menu},
    {"planner.frontier_limit", "integer", "256 to 65536", "cells", "2048",
     [](const json& v, Config& c) {
       return read_integer(v, {256, 65536}, c.planner.frontier_limit);
     }},
    {"planner.keep_operators", "list of strings",
     "names of operators such as aten::addmm; a * at the end stands for any rest", "", "[]",
     [](const json& v, Config& c) { return read_operators(v, c.planner.keep_operators); }},
    {"planner.recompute_operators", "list of strings",
     "names of operators such as aten::gelu; a * at the end stands for any rest", "", "[]",
     [](const json& v, Config& c) { return read_operators(v, c.planner.recompute_operators); }},
    {"offload.host_bytes", "integer", "0 to 1125899906842624", "bytes", "4294967296",
     [](const json& v, Config& c) {
       return read_integer(v, {0, std::int64_t{1} << 50U}, c.offload.host_bytes);
     }},
    {"margin.revocation_rate", "number", "above 0, to 0.5", "share of steps", "0.01",
     [](const json& v, Config& c) {
       return read_number(v, {0, 0.5}, c.margin.revocation_rate);
     }},
    {"cache.capacity", "integer", "1 to 1000000", "plans", "512",
     [](const json& v, Config& c) {
       return read_integer(v, {1, 1000000}, c.cache.capacity);
     }},
    {"policy", "string", "name[:key=value]..., values joined by +, without commas", "",
     "\"pudica\"", &read_policy},
    {"daemon.enabled", "boolean", "true or false", "", "true",
     [](const json& v, Config& c) {
       if (!v.is_boolean()) return false;
       c.daemon.enabled = v.get<bool>();
       return true;
     }},
    {"daemon.socket", "string", "a path; empty for the usual place", "", "\"\"",
     [](const json& v, Config& c) { return read_text(v, c.daemon.socket); }},
    {"daemon.group", "string", "a name; empty for none", "", "\"\"",
     [](const json& v, Config& c) { return read_text(v, c.daemon.group); }},
    {"log.level", "string", "off, error, warn, info or debug", "", "\"warn\"", &read_log_level},
    {"state_file", "string", "a path; empty for none", "", "\"\"",
     [](const json& v, Config& c) { return read_text(v, c.state_file); }},
}};

}  // namespace

bool read_budget(const json& value, Config& config) {
  BudgetSetting budget;
  if (value.is_string()) {
    const auto parsed = parse_budget(value.get_ref<const std::string&>());
    if (!parsed) return false;
    budget = *parsed;
  } else if (value.is_number_float()) {
    budget.kind = BudgetSetting::Kind::kFraction;
    budget.fraction = value.get<double>();
    if (!(budget.fraction >= 0 && budget.fraction <= 1)) return false;
  } else {
    budget.kind = BudgetSetting::Kind::kBytes;
    std::int64_t count = 0;
    if (!read_integer(value, {1, std::int64_t{1} << 60}, count)) return false;
    budget.bytes = Bytes(count);
  }
  config.budget = budget;
  return true;
}

bool read_log_level(const json& value, Config& config) {
  if (!value.is_string()) return false;
  const auto& level = value.get_ref<const std::string&>();
  if (std::ranges::find(kLogLevels, level) == kLogLevels.end()) return false;
  config.log.level = level;
  return true;
}

std::span<const Key> keys() { return kKeys; }

std::string expected_of(const Key& key) {
  std::string text = "expected " + std::string(key.type) + ": " + std::string(key.range);
  if (!key.unit.empty()) text += " (" + std::string(key.unit) + ")";
  return text;
}

}  // namespace pudica::config
