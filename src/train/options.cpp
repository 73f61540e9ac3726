#include "train/options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "config/config.h"
#include "policy/policy_spec.h"

namespace pudica::train {
namespace {

constexpr std::string_view kDefaultPolicies = "none,full,static,mimose,reactive,pudica,oracle";
constexpr std::string_view kDefaultBudget = "0.4";
constexpr std::int64_t kDefaultTextLength = 1024;
constexpr std::int64_t kTextVocabulary = 256;
constexpr std::int64_t kLengthsVocabulary = 4000;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc() || end != text.data() + text.size() || value < least ||
      value > most) {
    return invalid_argument(
        fmt::format("'{}' seen, expected an integer from {} to {}", text, least, most));
  }
  return value;
}

Result<double> parse_fraction(std::string_view text, double below) {
  double value = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (text.empty() || status != std::errc() || end != text.data() + text.size() ||
      !(value >= 0 && value < below)) {
    return invalid_argument(
        fmt::format("'{}' seen, expected a number from 0 to below {}", text, below));
  }
  return value;
}

Result<void> set_integer(std::string_view text, std::int64_t most, std::int64_t& value) {
  auto parsed = parse_integer(text, 1, most);
  if (!parsed) return parsed.error();
  value = *parsed;
  return {};
}

Result<void> set_model_key(std::string_view key, std::string_view value, ModelOptions& model) {
  if (key == "layers") return set_integer(value, 1000, model.layers);
  if (key == "hidden") return set_integer(value, 65536, model.hidden);
  if (key == "heads") return set_integer(value, 1024, model.heads);
  if (key == "vocab") return set_integer(value, 1 << 20, model.vocab);
  if (key == "dropout") {
    auto parsed = parse_fraction(value, 1.0);
    if (!parsed) return parsed.error();
    model.dropout = *parsed;
    return {};
  }
  if (key == "attention") {
    if (value != "flash" && value != "math") {
      return invalid_argument(fmt::format("'{}' seen, expected flash or math", value));
    }
    model.attention = value == "flash" ? Attention::kFlash : Attention::kMath;
    return {};
  }
  if (key == "dtype") {
    if (value != "fp32" && value != "bf16") {
      return invalid_argument(fmt::format("'{}' seen, expected fp32 or bf16", value));
    }
    model.dtype = value == "fp32" ? Dtype::kFloat32 : Dtype::kBfloat16;
    return {};
  }
  return invalid_argument(
      "unknown key, expected one of layers hidden heads vocab attention dtype dropout");
}

// The options as text, before any check; empty: not given.
struct RawOptions {
  std::string data, max_length, model = "small", batch = "4", steps = "40", seed = "1", threads;
  std::string device = "cpu", policy{kDefaultPolicies}, budget;
  std::string config, state, out = "pudica-out", warmup_mode, record, clock = "device";
  bool daemon = false;
  std::string name;
  bool version = false;
};

CLI::Option& add_text_option(CLI::App& app, const std::string& name, std::string& value,
                             const std::string& help) {
  CLI::Option* const option = app.add_option(name, value, help);
  return *option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void declare(CLI::App& app, RawOptions& raw) {
  const auto add = [&app](const std::string& name, std::string& value, const std::string& help) {
    add_text_option(app, name, value, help);
  };
  add("--data", raw.data,
      "text:FILE (bytes are tokens, a line is an example) or\n"
      "lengths:FILE.csv[:column[,column]]; default: the text that comes with pudica");
  add("--max-length", raw.max_length, "cut examples at N tokens; default: 1024 for text, uncut");
  add("--model", raw.model,
      "mini, small or base, then key=value with commas between; keys:\n"
      "layers hidden heads vocab attention=flash|math dtype=fp32|bf16 dropout; default: small");
  add("--batch", raw.batch, "examples in a batch; default: 4");
  add("--steps", raw.steps, "steps of each policy; default: 40");
  add("--seed", raw.seed, "of data order, parameters and dropout; default: 1");
  add("--threads", raw.threads, "compute threads; default: all cores");
  add("--device", raw.device, "cpu or cuda; default: cpu");
  add("--policy", raw.policy,
      "policies with commas between, each name[:key=value]...; default:\n" +
          std::string(kDefaultPolicies));
  add("--budget", raw.budget,
      "bytes (600MiB, 1.5GB, 629145600) or a fraction with a point: 0.0 is\n"
      "what recomputing every layer needs, 1.0 what keeping all needs; default: 0.4");
  add("--config", raw.config, "configuration file of pudica (JSON)");
  add("--state", raw.state, "learned state: read if it is there, written at the end");
  add("--out", raw.out, "folder for result.json, steps.csv and report.html; default: pudica-out");
  add("--warmup-mode", raw.warmup_mode, "revocable or sheltered; default: as configured");
  add("--record", raw.record, "write one step record a line (JSON)");
  constexpr const char* kHidden = "";  // for tests: the same plans on every machine
  add_text_option(app, "--clock", raw.clock, "device or operators").group(kHidden);
  app.add_flag("--daemon", raw.daemon, "register planning policies with pudicad");
  add("--name", raw.name,
      "what pudicad calls the run, with the policy behind it; default: pudica-train");
  app.add_flag("--version", raw.version, "print the version");
  app.get_option("--budget")->envname("PUDICA_BUDGET");
  app.get_option("--config")->envname("PUDICA_CONFIG");
}

Result<void> check_choice(std::string_view value, std::initializer_list<std::string_view> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
  return invalid_argument(fmt::format("'{}' seen, expected {}", value, fmt::join(choices, " or ")));
}

Result<void> check_name(const std::string& name) {
  constexpr std::size_t kLongest = 100;
  if (name.size() <= kLongest) return {};
  return invalid_argument(
      fmt::format("{} characters seen, expected at most {}", name.size(), kLongest));
}

// Reads one value into `target`; false with the error kept once anything failed.
class Reader {
 public:
  template <typename T>
  void read(std::string_view option, Result<T> parsed, T& target) {
    if (!parsed) {
      fail(option, parsed.error());
    } else {
      target = *std::move(parsed);
    }
  }
  void check(std::string_view option, const Result<void>& outcome) {
    if (!outcome) fail(option, outcome.error());
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  void fail(std::string_view option, const Error& error) {
    if (!error_) error_ = error.with_context(option);
  }

  std::optional<Error> error_;
};

constexpr std::int64_t kMostLength = 1 << 24;
constexpr std::int64_t kMostSteps = 1'000'000;

Result<TrainOptions> compile(const RawOptions& raw) {
  TrainOptions options;
  Reader reader;
  reader.read("--data", parse_data(raw.data.empty() ? "text:" + default_text_path() : raw.data),
              options.data);
  const bool text = options.data.kind == DataKind::kText;
  options.max_length = text ? kDefaultTextLength : 0;
  if (!raw.max_length.empty()) {
    reader.read("--max-length", parse_integer(raw.max_length, 1, kMostLength), options.max_length);
  }
  reader.read("--model", parse_model(raw.model), options.model);
  if (options.model.vocab == 0) options.model.vocab = text ? kTextVocabulary : kLengthsVocabulary;
  if (text && options.model.vocab < kTextVocabulary) {
    reader.check("--model", invalid_argument(fmt::format(
                                "vocab={} seen, expected at least {}: the tokens of text are bytes",
                                options.model.vocab, kTextVocabulary)));
  }
  reader.read("--batch", parse_integer(raw.batch, 1, 1 << 20), options.batch);
  reader.read("--steps", parse_integer(raw.steps, 1, kMostSteps), options.steps);
  std::int64_t seed = 1;
  reader.read("--seed", parse_integer(raw.seed, 0, INT64_MAX), seed);
  options.seed = static_cast<std::uint64_t>(seed);
  options.threads = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  if (!raw.threads.empty()) {
    reader.read("--threads", parse_integer(raw.threads, 1, 4096), options.threads);
  }
  reader.check("--device", check_choice(raw.device, {"cpu", "cuda"}));
  options.device = raw.device;
  reader.read("--policy", parse_policy_list(raw.policy), options.policies);
  options.budget_given = !raw.budget.empty();
  reader.read("--budget", parse_budget(options.budget_given ? raw.budget : kDefaultBudget),
              options.budget);
  if (!raw.warmup_mode.empty()) {
    reader.check("--warmup-mode", check_choice(raw.warmup_mode, {"revocable", "sheltered"}));
  }
  reader.check("--clock", check_choice(raw.clock, {"device", "operators"}));
  reader.check("--name", check_name(raw.name));
  if (raw.out.empty()) reader.check("--out", invalid_argument("'' seen, expected a folder"));
  if (reader.error()) return *reader.error();
  options.config = raw.config;
  options.state = raw.state;
  options.out = raw.out;
  options.daemon = raw.daemon;
  options.name = raw.name;
  options.warmup_mode = raw.warmup_mode;
  options.record = raw.record;
  options.counts_operators = raw.clock == "operators";
  return options;
}

}  // namespace

std::string_view to_string(Attention attention) {
  return attention == Attention::kFlash ? "flash" : "math";
}

std::string_view to_string(Dtype dtype) { return dtype == Dtype::kFloat32 ? "fp32" : "bf16"; }

Bytes BudgetOption::resolve(Bytes floor_bytes, Bytes keep_all_bytes) const {
  if (!fraction) return bytes;
  const auto range = static_cast<double>((keep_all_bytes - floor_bytes).count());
  return floor_bytes + Bytes(static_cast<std::int64_t>(*fraction * range));
}

Result<BudgetOption> parse_budget(std::string_view text) {
  const std::string expected =
      "expected bytes (600MiB, 1.5GB, an integer) or a fraction from 0.0 to 1.0 with a point";
  const bool plain = text.find_first_not_of("0123456789.") == std::string_view::npos;
  BudgetOption budget;
  if (const auto setting = pudica::parse_budget(text);
      setting && setting->kind == BudgetSetting::Kind::kBetween) {
    budget.fraction = setting->fraction;
    return budget;
  }
  if (plain && text.find('.') != std::string_view::npos) {
    double value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || end != text.data() + text.size() || !(value <= 1)) {
      return invalid_argument(fmt::format("'{}' seen, {}", text, expected));
    }
    budget.fraction = value;
    return budget;
  }
  auto bytes = parse_bytes(text);
  if (!bytes || bytes->count() < 1) {
    return invalid_argument(fmt::format("'{}' seen, {}", text, expected));
  }
  budget.bytes = *bytes;
  return budget;
}

Result<DataOptions> parse_data(std::string_view text) {
  const auto error = [text] {
    return invalid_argument(
        fmt::format("'{}' seen, expected text:FILE or lengths:FILE.csv[:column[,column]]", text));
  };
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return error();
  const auto kind = text.substr(0, colon);
  auto rest = text.substr(colon + 1);
  DataOptions data;
  if (kind == "lengths") {
    data.kind = DataKind::kLengths;
    // A colon after the last slash separates the columns, unless it is part of a name in .csv.
    const auto last = rest.rfind(':');
    if (last != std::string_view::npos && rest.find('/', last) == std::string_view::npos &&
        !rest.substr(last).ends_with(".csv")) {
      data.columns = split(rest.substr(last + 1), ',');
      rest = rest.substr(0, last);
      const bool named = std::none_of(data.columns.begin(), data.columns.end(),
                                      [](const std::string& name) { return name.empty(); });
      if (data.columns.size() > 2 || !named || rest.empty()) return error();
    }
  } else if (kind != "text") {
    return error();
  }
  data.path = rest;
  return data;
}

Result<ModelOptions> parse_model(std::string_view text) {
  const auto parts = split(text, ',');
  ModelOptions model;
  model.preset = parts[0];
  if (model.preset == "mini") {
    model.layers = 4, model.hidden = 64, model.heads = 2;
  } else if (model.preset == "base") {
    model.layers = 12, model.hidden = 768, model.heads = 12;
  } else if (model.preset != "small") {
    return invalid_argument(
        fmt::format("'{}' seen, expected mini, small or base, then key=value", parts[0]));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == std::string::npos) {
      return invalid_argument(fmt::format("'{}' seen, expected key=value", parts[i]));
    }
    const auto key = parts[i].substr(0, equals);
    const auto outcome = set_model_key(key, parts[i].substr(equals + 1), model);
    if (!outcome) return outcome.error().with_context(key);
  }
  if (model.hidden % model.heads != 0) {
    return invalid_argument(
        fmt::format("hidden={} seen, expected a multiple of heads={}", model.hidden, model.heads));
  }
  return model;
}

Result<std::vector<std::string>> parse_policy_list(std::string_view text) {
  auto names = split(text, ',');
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (name->empty()) {
      return invalid_argument(
          fmt::format("'{}' seen, expected policy names with commas between", text));
    }
    if (std::find(names.begin(), name, *name) != name) {
      return invalid_argument(fmt::format("'{}' seen twice, expected each policy once", *name));
    }
    if (const auto spec = parse_policy_spec(*name); !spec) return spec.error();
  }
  return names;
}

std::string default_text_path() {
  namespace fs = std::filesystem;
  constexpr const char* kFile = "pride_and_prejudice.txt";
  std::error_code code;
  const auto program = fs::read_symlink("/proc/self/exe", code);
  if (!code) {
    auto installed = program.parent_path().parent_path() / "share" / "pudica" / "data" / kFile;
    if (fs::exists(installed, code)) return installed.string();
  }
  return (fs::path(PUDICA_SOURCE_DATA_DIR) / kFile).string();
}

Result<CommandLine> parse_command_line(std::span<const std::string> arguments) {
  RawOptions raw;
  CLI::App app(
      "Trains one model under several memory policies side by side, one step each in turn,\n"
      "and reports time, peak memory and budget of each.",
      "pudica-train");
  declare(app, raw);
  CommandLine line;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    line.print = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    return invalid_argument(std::string(error.what()) +
                            " (expected the options that `pudica-train --help` lists)");
  }
  if (raw.version) {
    line.print = "pudica-train " PUDICA_VERSION "\n";
    return line;
  }
  auto options = compile(raw);
  if (!options) return options.error();
  line.options = *std::move(options);
  return line;
}

}  // namespace pudica::train
