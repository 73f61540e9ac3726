#include "config/config.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/nearest_name.h"
#include "base/text_limits.h"
#include "config/json_text.h"
#include "config/keys.h"

namespace pudica {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 1U << 20U;
constexpr std::size_t kShownCharacters = 60;

std::string seen(const json& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return shown(text, kShownCharacters);
}

// Names from the file are cut first: the work is bounded.
std::size_t distance(std::string_view seen_name, std::string_view known) {
  return edit_distance(seen_name.substr(0, kShownCharacters), known);
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// "warmup" of "warmup.mode"; empty for a key at the top.
std::string_view section(std::string_view path) {
  const std::size_t dot = path.find('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

bool is_section(std::string_view name) {
  return std::ranges::any_of(config::keys(), [name](const config::Key& key) {
    return !name.empty() && section(key.path) == name;
  });
}

// By the whole path or by the last name, whichever is closer: a key in the wrong section is found.
std::string_view nearest_known(std::string_view path) {
  std::string_view nearest;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  const auto consider = [&](std::string_view known, std::size_t away) {
    if (away >= least) return;
    least = away;
    nearest = known;
  };
  for (const config::Key& key : config::keys()) {
    consider(key.path, distance(path, key.path));
    consider(key.path, distance(leaf(path), leaf(key.path)));
    const std::string_view outer = section(key.path);
    if (!outer.empty()) consider(outer, distance(path, outer));
  }
  return nearest;
}

class Reader {
 public:
  explicit Reader(std::string_view source_name) : source_name_(source_name) {}

  void read(const json& root) {
    if (!root.is_object()) {
      fail("top level: " + seen(root) + ", expected an object");
      return;
    }
    for (const auto& [name, value] : root.items()) {
      if (is_section(name)) {
        read_section(name, value);
      } else {
        read_key(name, value);
      }
    }
    check_together();
  }

  void fail(const std::string& message) {
    parsed_.errors.push_back(std::string(source_name_) + ": " + message);
  }

  ParsedConfig take() { return std::move(parsed_); }

 private:
  void read_section(const std::string& name, const json& value) {
    if (!value.is_object()) {
      fail(name + ": " + seen(value) + ", expected an object");
      return;
    }
    for (const auto& [inner, inner_value] : value.items()) {
      read_key(std::string(name).append(".").append(inner), inner_value);
    }
  }

  void read_key(const std::string& path, const json& value) {
    for (const config::Key& key : config::keys()) {
      if (key.path != path) continue;
      if (!key.read(value, parsed_.config)) {
        fail(path + ": " + seen(value) + ", " + config::expected_of(key));
      }
      return;
    }
    fail(shown(path) + ": unknown key (value " + seen(value) + "); the nearest known key is " +
         std::string(nearest_known(path)));
  }

  void check_together() {
    const Config::Warmup& warmup = parsed_.config.warmup;
    if (warmup.min_steps > warmup.max_steps) {
      fail("warmup.min_steps: " + std::to_string(warmup.min_steps) +
           ", expected at most warmup.max_steps, " + std::to_string(warmup.max_steps));
    }
  }

  std::string_view source_name_;
  ParsedConfig parsed_;
};

}  // namespace

Result<Config> ParsedConfig::result() const {
  if (ok()) return config;
  std::string message;
  for (const std::string& error : errors) message += (message.empty() ? "" : "\n") + error;
  return invalid_argument(message);
}

std::vector<ConfigKey> config_keys() {
  std::vector<ConfigKey> out;
  for (const config::Key& key : config::keys()) {
    out.push_back({std::string(key.path), std::string(key.type), std::string(key.range),
                   std::string(key.unit), std::string(key.default_json)});
  }
  return out;
}

ParsedConfig parse_config(std::string_view text, std::string_view source_name) {
  Reader reader(source_name);
  const config::JsonText json_text = config::read_json(text);
  for (const std::string& error : json_text.errors) reader.fail(error);
  if (json_text.value) reader.read(*json_text.value);
  return reader.take();
}

ParsedConfig load_config(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A directory opens but does not read: bad() tells it apart from a short file.
  if (!file.is_open() || file.bad()) return {{}, {name + ": cannot be read, expected a JSON file"}};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    return {{}, {name + ": larger than 1 MiB, expected a configuration file"}};
  }
  return parse_config(text, name);
}

ControllerOptions compile_controller_options(const Config& config) {
  ControllerOptions options;
  options.warmup_mode = config.warmup.mode;
  options.warmup_min_steps = config.warmup.min_steps;
  options.warmup_max_steps = config.warmup.max_steps;
  options.warmup_fit_error = config.warmup.fit_error;
  options.margin_revocation_rate = config.margin.revocation_rate;
  options.menu = config.planner.menu;
  options.host_bytes = config.offload.host_bytes;
  options.planner.frontier_cells = static_cast<std::int32_t>(config.planner.frontier_limit);
  options.predictor.forgetting = config.predictor.forgetting;
  options.predictor.max_samples_per_segment =
      static_cast<std::int32_t>(config.predictor.max_samples_per_segment);
  options.cache.capacity = config.cache.capacity;
  return options;
}

}  // namespace pudica
