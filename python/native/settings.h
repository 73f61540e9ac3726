// Settings: what the Python package asks of an attachment, as JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "config/config.h"
#include "pudica/bytes.h"
#include "pudica/controller.h"
#include "pudica/torch.h"

namespace pudica::python {

// {"budget_bytes", "budget_fraction" (or null), "hard", "device", "config" (a path or ""), "daemon"
// (bool or null: as configured), "name", "model", "fingerprint", "policy" (null: as configured; a
// policy spec, or "random:seed=N" for another random plan each step), "clock" (null: the device's
// own; "operators": operator_clock())}
struct Settings {
  Config config;
  Bytes budget_bytes{0};
  std::optional<double> budget_fraction;  // in [0, 1]; then budget_bytes is the most it may come to
  Enforcement enforcement = Enforcement::kSoft;
  std::string device = "cpu";
  bool daemon = true;
  std::string name;
  std::string model;  // in words
  std::string fingerprint;
  bool policy_given = false;         // to attach(); else config.policy is as configured
  std::shared_ptr<WorkClock> clock;  // null: the device's own
};

// Throws std::runtime_error.
Settings read_settings(const std::string& json);

// What the configuration and the environment say of the budget: {"kind": "auto"} | {"kind":
// "bytes", "bytes": n} | {"kind": "fraction", "fraction": f} | {"kind": "between", "fraction": f},
// and "state_file". Throws std::runtime_error.
std::string configured(const std::string& config_path);
// The same of a text; errors name it.
std::string read_budget(const std::string& text);

}  // namespace pudica::python
