// The command line of pudica-train: every option with its default and its check.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/result.h"

namespace pudica::train {

enum class DataKind : std::uint8_t { kText, kLengths };

// Where the examples come from.
struct DataOptions {
  DataKind kind = DataKind::kText;
  std::string path;
  std::vector<std::string> columns;  // of a lengths file, one or two; empty: `len`, else the pair

  bool operator==(const DataOptions&) const = default;
};

enum class Attention : std::uint8_t { kFlash, kMath };
enum class Dtype : std::uint8_t { kFloat32, kBfloat16 };

std::string_view to_string(Attention attention);
std::string_view to_string(Dtype dtype);

struct ModelOptions {
  std::string preset = "small";
  std::int64_t layers = 8;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t vocab = 0;  // 0 only before parse_command_line has filled it in
  Attention attention = Attention::kFlash;
  Dtype dtype = Dtype::kFloat32;
  double dropout = 0.1;
};

// A count of bytes, or a fraction of the way from the floor to keeping all.
struct BudgetOption {
  std::optional<double> fraction;
  Bytes bytes{0};  // where there is no fraction

  // floor + f * (keep_all - floor), or the bytes given.
  [[nodiscard]] Bytes resolve(Bytes floor_bytes, Bytes keep_all_bytes) const;
};

struct TrainOptions {
  DataOptions data;
  std::int64_t max_length = 0;  // tokens; 0: uncut
  ModelOptions model;
  std::int64_t batch = 4;
  std::int64_t steps = 40;
  std::uint64_t seed = 1;
  std::int64_t threads = 1;
  std::string device = "cpu";
  std::vector<std::string> policies;
  BudgetOption budget;
  bool budget_given = false;  // on the command line or by PUDICA_BUDGET
  std::string config;         // paths; empty: not given
  std::string state;
  std::string out = "pudica-out";
  bool daemon = false;
  std::string name;         // of the run for the daemon; empty: pudica-train
  std::string warmup_mode;  // "revocable" or "sheltered"; empty: as the configuration says
  std::string record;
  bool counts_operators = false;  // plans weigh operator_clock()'s seconds, not the device's
};

// What the arguments ask for: a run, or a text to print (help, version).
struct CommandLine {
  TrainOptions options;
  std::string print;  // not empty: print it and exit 0
};

// `arguments` without the program's name. Reads PUDICA_BUDGET and PUDICA_CONFIG where the option is
// not given. Errors: kInvalidArgument naming option, value seen and value expected (exit code 2).
Result<CommandLine> parse_command_line(std::span<const std::string> arguments);

// The parts, for tests and for the configuration file. Errors: kInvalidArgument, without the name
// of the option.
Result<BudgetOption> parse_budget(std::string_view text);
Result<DataOptions> parse_data(std::string_view text);
Result<ModelOptions> parse_model(std::string_view text);
Result<std::vector<std::string>> parse_policy_list(std::string_view text);

// The text that comes with pudica: beside the installed program, else in the source tree.
std::string default_text_path();

}  // namespace pudica::train
