// The table of keys: how each is read, and what its documentation must say.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "config/config.h"

namespace pudica::config {

struct Key {
  std::string_view path;
  std::string_view type;
  std::string_view range;
  std::string_view unit;
  std::string_view default_json;
  // Stores the value, or returns false and leaves the config as it was.
  bool (*read)(const nlohmann::json& value, Config& config);
};

std::span<const Key> keys();

// "an integer from 1 to 1000 (steps)"
std::string expected_of(const Key& key);

// Shared with the environment, whose values are text.
bool read_budget(const nlohmann::json& value, Config& config);
bool read_log_level(const nlohmann::json& value, Config& config);

}  // namespace pudica::config
