// The configuration file: JSON text -> validated plain struct -> options of live objects.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/mode.h"
#include "pudica/result.h"

namespace pudica {

// A budget as it is written: what a fraction is a fraction of depends on the program that reads it.
struct BudgetSetting {
  enum class Kind : std::uint8_t { kAuto, kBytes, kFraction, kBetween };

  Kind kind = Kind::kAuto;
  Bytes bytes{0};  // of kBytes, >= 1
  // In [0, 1]: of kFraction; of kBetween the way from what recomputing every layer of the longest
  // batches needs to what keeping all needs.
  double fraction = 0;

  bool operator==(const BudgetSetting&) const = default;
};

// Reads "auto", bytes ("600MiB", "4096"), a fraction with a point ("0.4") or "between(0.4)".
// Errors: kInvalidArgument naming the text and what was expected.
Result<BudgetSetting> parse_budget(std::string_view text);

// "auto", a byte count with its unit, a fraction or "between(0.4)": what parse_budget reads.
std::string to_string(const BudgetSetting& budget);

// Every key of the file, with its default. Ranges and units: docs/configuration.md, config_keys().
struct Config {
  struct Warmup {
    WarmupMode mode = WarmupMode::kRevocable;
    std::int64_t min_steps = 2;
    std::int64_t max_steps = 30;
    double fit_error = 0.01;
    bool operator==(const Warmup&) const = default;
  };
  struct Predictor {
    double forgetting = 1.0;
    std::int64_t max_samples_per_segment = 64;
    bool operator==(const Predictor&) const = default;
  };
  struct Planner {
    std::vector<Mode::Kind> menu{Mode::Kind::kKeep, Mode::Kind::kSelective, Mode::Kind::kFull};
    std::int64_t frontier_limit = 2048;
    std::vector<std::string> keep_operators;       // names, a * at the end stands for any rest
    std::vector<std::string> recompute_operators;  // likewise
    bool operator==(const Planner&) const = default;
  };
  struct Offload {
    std::int64_t host_bytes = std::int64_t{4} << 30U;
    bool operator==(const Offload&) const = default;
  };
  struct Margin {
    double revocation_rate = 0.01;
    bool operator==(const Margin&) const = default;
  };
  struct Cache {
    std::int64_t capacity = 512;
    bool operator==(const Cache&) const = default;
  };
  struct Daemon {
    bool enabled = true;
    std::string socket;  // empty: the usual place
    std::string group;   // budget group; empty: none
    bool operator==(const Daemon&) const = default;
  };
  struct Log {
    std::string level = "warn";
    bool operator==(const Log&) const = default;
  };

  BudgetSetting budget;
  Warmup warmup;
  Predictor predictor;
  Planner planner;
  Offload offload;
  Margin margin;
  Cache cache;
  std::string policy = "pudica";
  Daemon daemon;
  Log log;
  std::string state_file;  // empty: none

  bool operator==(const Config&) const = default;
};

// What is wrong, one message an error: source, key path, value seen, value expected.
using ConfigErrors = std::vector<std::string>;

// The outcome of reading. With errors, `config` is not to be used.
struct ParsedConfig {
  Config config;
  ConfigErrors errors;

  [[nodiscard]] bool ok() const { return errors.empty(); }
  // The config, or kInvalidArgument with every message, one a line.
  [[nodiscard]] Result<Config> result() const;
};

// One key of the file as the reader knows it; documentation and schema are tested against it.
struct ConfigKey {
  std::string path;          // "warmup.min_steps"
  std::string type;          // "integer", "number", "string", "boolean", "list of strings", ...
  std::string range;         // "1 to 1000"
  std::string unit;          // "steps"; empty: none
  std::string default_json;  // "2"
};

// In the order of the file.
std::vector<ConfigKey> config_keys();

// Reads the whole text and reports every error in it, not only the first. `source_name` goes in
// front of every message. Refuses unknown keys (with the nearest known name) and repeated keys.
ParsedConfig parse_config(std::string_view text, std::string_view source_name);

// Reads a file of at most 1 MiB.
ParsedConfig load_config(const std::filesystem::path& path);

// Value of an environment variable, nullopt where it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

// Overrides `config` by PUDICA_BUDGET, PUDICA_SOCKET, PUDICA_GROUP and PUDICA_LOG; an empty value
// counts as not set. A refused value leaves its key as it was and is reported.
ConfigErrors apply_environment(const EnvironmentLookup& lookup, Config& config);

// The options of the controller that a valid config describes.
ControllerOptions compile_controller_options(const Config& config);

}  // namespace pudica
