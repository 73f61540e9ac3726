// report.html of one run: its steps, plans and budgets on one page that needs nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cli/json_view.h"
#include "inspect/json.h"
#include "pudica/result.h"

namespace pudica::cli {

// What a page shows of a run, whichever way it was learned. Bounded: beyond the limits the oldest
// steps and plans are left out, and the page says so. Not thread-safe.
class RunReport {
 public:
  static constexpr std::size_t kMaxSteps = 20000;
  static constexpr std::size_t kMaxPlans = 2000;

  // From the daemon's `GET /v1/runs/{id}` and `GET /v1/runs/{id}/plans`.
  static RunReport of_run(const Json& run, const Json& plans);

  RunReport() = default;
  // From a file of step records, in their order.
  void add(const StepRecord& record);
  void set_source(std::string source) { source_ = std::move(source); }

  [[nodiscard]] std::size_t steps() const { return steps_.size(); }
  [[nodiscard]] std::string html() const;

 private:
  struct Step {
    std::int64_t step = 0;
    std::string shape;
    std::int64_t predicted_bytes = 0;  // 0: not predicted
    std::int64_t measured_bytes = 0;
    std::int64_t budget_bytes = 0;  // 0: not limited
    double seconds = 0;
    std::optional<double> recompute_seconds;
    std::int64_t recomputed = 0;
    std::int64_t layers = 0;
    std::int64_t revocations = 0;
    bool overrun = false;
    bool learning = false;
  };
  struct PlanOfShape {
    Json modes;
    std::int64_t predicted_bytes = 0;
    std::int64_t measured_bytes = 0;
  };

  void add(Step step);
  void add_plan(const std::string& shape, PlanOfShape plan);
  [[nodiscard]] Json data() const;
  [[nodiscard]] std::string conclusion() const;
  [[nodiscard]] std::string tiles() const;
  [[nodiscard]] std::string changes_table() const;
  [[nodiscard]] double median_seconds() const;

  std::string name_ = "run";
  std::string facts_;
  std::string source_;
  std::vector<Step> steps_;
  std::int64_t steps_left_out_ = 0;
  std::int64_t plans_left_out_ = 0;
  std::map<std::string, PlanOfShape> plans_;  // by shape
  Json changes_ = Json::array();              // {step, budget_bytes, source, ...}
};

// The fixed parts, made from src/cli/report and src/report at build time.
extern const std::string_view kRunReportPage;
extern const std::string_view kRunReportStyle;
extern const std::string_view kRunReportScript;

}  // namespace pudica::cli
