// What a run measured: rows a step, a result a policy, and result.json made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "pudica/bytes.h"
#include "pudica/result.h"
#include "train/options.h"

namespace pudica::train {

// One step of one policy.
struct StepRow {
  std::int64_t step = 0;  // from 0
  std::string shape;      // "4x512"
  double seconds = 0;
  double cpu_seconds = 0;
  // Between begin_step and end_step by the handle's clock, and of that what running layers again
  // took (inspect/recomputation.h): what records and the daemon are told.
  double handle_seconds = 0;
  std::optional<double> recompute_seconds;
  double loss = 0;
  Bytes peak{0};
  Bytes predicted{0};  // 0: no prediction
  bool bound = false;  // there is only a bound: some layers ran a mode to have it measured
  Bytes budget{0};     // 0: not limited
  Bytes base{0};
  std::int64_t revocations = 0;
  bool overrun = false;
  std::int64_t recomputed_layers = 0;  // calls run again, whole or in part
  std::int64_t layer_calls = 0;
  std::int64_t plan_ns = 0;
  std::optional<bool> cache_hit;  // nothing: the policy has no cache
  bool learning = false;
};

nlohmann::json to_json(const StepRow& row);
// Errors: kCorrupt naming the field.
Result<StepRow> step_row_from_json(const nlohmann::json& json);

enum class PolicyStatus : std::uint8_t { kOk, kOom, kFailed, kInterrupted };

std::string to_string(PolicyStatus status);

// Rows beside `none`, which is plain LibTorch: keeping everything under a handle and its meter, and
// the same held to the budget.
inline constexpr const char* kMeteredName = "none (metered)";
inline constexpr const char* kCappedName = "none (capped)";

// Everything that came from one policy's worker.
struct PolicyResult {
  std::string name;  // as given, kMeteredName or kCappedName
  PolicyStatus status = PolicyStatus::kOk;
  std::string detail;  // why it is not ok, in words
  std::vector<StepRow> rows;
  std::string params_sha256;  // empty: it did not finish
  nlohmann::json cache;       // {hits, misses, plans} or null
  nlohmann::json plans;       // a list or null
};

struct RunResult {
  TrainOptions options;
  nlohmann::json origin;  // revision, command and the rest of inspect/origin.h, or null
  nlohmann::json machine;
  nlohmann::json versions;
  Bytes budget{0};
  Bytes floor{0};
  Bytes keep_all{0};
  std::optional<Bytes> menu_floor;
  std::vector<PolicyResult> policies;
};

// The run's `none` without a cap, against which the others are measured; null without one.
const PolicyResult* reference_of(const RunResult& run);

// One entry of policies[]; `reference` may be null. What does not apply is null.
nlohmann::json summarize(const PolicyResult& policy, const PolicyResult* reference, Bytes budget);

// result.json, schema "pudica.result/1".
nlohmann::json to_json(const RunResult& run);

// steps.csv: a header, then a line for each step of each policy.
std::string steps_csv(const RunResult& run);

// A name for plans-<policy>.json: characters that file names dislike become '_'.
std::string file_name_of(const std::string& policy);

// Makes `folder` if it is missing. Errors: kInvalidArgument naming --out: it cannot be made, or not
// be written to.
Result<void> prepare_folder(const std::string& folder);

// Whether a file can be written at `path`. Errors: kInvalidArgument naming `option` and the path.
Result<void> check_writable(const std::string& option, const std::string& path);

// Writes result.json, steps.csv, plans-<policy>.json and report.html into `folder`, which is made
// if it is missing. Errors: kUnavailable naming the file.
Result<void> write_results(const RunResult& run, const std::string& folder);

}  // namespace pudica::train
