#include "policy/policy_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "base/nearest_name.h"

namespace pudica {
namespace {

// One option of one policy: how its value is stored. Returns what was expected on a bad value.
struct Option {
  std::string name;
  std::string expected;
  bool (*store)(PolicySpec& spec, std::string_view value);
};

struct Grammar {
  std::string name;
  std::vector<Option> options;
};

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

// The parts of `text` between separators; one empty part for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool store_menu(PolicySpec& spec, std::string_view value) {
  spec.menu.clear();
  for (const std::string_view part : split(value, '+')) {
    Mode::Kind kind = Mode::Kind::kKeep;
    if (part == "keep") {
      kind = Mode::Kind::kKeep;
    } else if (part == "full") {
      kind = Mode::Kind::kFull;
    } else if (part == "selective") {
      kind = Mode::Kind::kSelective;
    } else if (part == "offload") {
      kind = Mode::Kind::kOffload;
    } else {
      return false;
    }
    if (std::ranges::find(spec.menu, kind) == spec.menu.end()) spec.menu.push_back(kind);
  }
  return true;
}

bool store_rule(PolicySpec& spec, std::string_view value) {
  if (value == "paper") {
    spec.mimose_rule = MimoseRule::kPaper;
  } else if (value == "code") {
    spec.mimose_rule = MimoseRule::kCode;
  } else {
    return false;
  }
  return true;
}

bool store_buffer(PolicySpec& spec, std::string_view value) {
  const auto fraction = parse_number<double>(value);
  if (!fraction || !std::isfinite(*fraction) || *fraction < 0 || *fraction >= 1) return false;
  spec.mimose_buffer_fraction = *fraction;
  return true;
}

bool store_warmup(PolicySpec& spec, std::string_view value) {
  const auto steps = parse_number<std::int64_t>(value);
  if (!steps || *steps < 2) return false;
  spec.mimose_warmup_steps = *steps;
  return true;
}

bool store_n(PolicySpec& spec, std::string_view value) {
  const auto n = parse_number<std::int64_t>(value);
  if (!n || *n < 1) return false;
  spec.every_n = *n;
  return true;
}

bool store_h(PolicySpec& spec, std::string_view value) {
  constexpr std::pair<std::string_view, EvictionRule> kRules[] = {
      {"dtr", EvictionRule::kDtr},     {"dtr_eq", EvictionRule::kDtrEq},
      {"local", EvictionRule::kLocal}, {"lru", EvictionRule::kLru},
      {"size", EvictionRule::kSize},   {"msps", EvictionRule::kMsps},
      {"rand", EvictionRule::kRandom}, {"megengine", EvictionRule::kMegEngine}};
  for (const auto& [name, rule] : kRules) {
    if (name != value) continue;
    spec.dtr_eviction.rule = rule;
    return true;
  }
  return false;
}

bool store_seed(PolicySpec& spec, std::string_view value) {
  const auto seed = parse_number<std::uint64_t>(value);
  if (seed) spec.dtr_eviction.seed = *seed;
  return seed.has_value();
}

// An operator that is not torch's own is written as torch.ops has it, "my.scale": options end at a
// colon.
bool store_save(PolicySpec& spec, std::string_view value) {
  constexpr std::string_view kNameCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  spec.sac_save.clear();
  for (const std::string_view part : split(value, '+')) {
    const std::string_view name = part.ends_with('*') ? part.substr(0, part.size() - 1) : part;
    const std::size_t point = name.find('.');
    const bool one_point = point == std::string_view::npos || name.rfind('.') == point;
    if (name.empty() || point == 0 || !one_point) return false;
    if (name.find_first_not_of(kNameCharacters) != std::string_view::npos) return false;
    std::string& saved = spec.sac_save.emplace_back(part);
    if (point != std::string_view::npos) saved.replace(point, 1, "::");
  }
  return true;
}

const std::vector<Grammar>& grammars() {
  static const std::vector<Grammar> all{
      {"none", {}},
      {"full", {}},
      {"every_n", {{"n", "a whole number of at least 1", store_n}}},
      {"sqrt", {}},
      {"dtr",
       {{"h", "dtr, dtr_eq, local, lru, size, msps, rand or megengine", store_h},
        {"seed", "a whole number", store_seed}}},
      {"sac",
       {{"save", "names of operators, as addmm or _scaled_dot_product_*, joined by '+'",
         store_save}}},
      {"static", {}},
      {"mimose",
       {{"rule", "paper or code", store_rule},
        {"buffer", "a fraction of the budget in [0, 1)", store_buffer},
        {"warmup", "a whole number of steps of at least 2", store_warmup}}},
      {"reactive", {}},
      {"pudica", {{"menu", "keep, full, selective and offload, joined by '+'", store_menu}}},
      {"oracle", {}},
  };
  return all;
}

Error bad_option(const Grammar& grammar, std::string_view seen) {
  std::vector<std::string> names;
  for (const Option& option : grammar.options) names.push_back(option.name);
  std::string message =
      "policy '" + grammar.name + "': unknown option '" + std::string(seen) + "'; ";
  if (names.empty()) return invalid_argument(message + "it takes no options");
  return invalid_argument(message + "expected " + joined_names(names) +
                          did_you_mean(seen.substr(0, seen.find('=')), names));
}

Result<void> apply_option(const Grammar& grammar, std::string_view text, PolicySpec& spec,
                          std::vector<std::string>& given) {
  const std::size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const auto option = std::ranges::find(grammar.options, key, &Option::name);
  if (option == grammar.options.end()) return bad_option(grammar, text);
  const std::string where = "policy '" + grammar.name + "': option '" + option->name + "'";
  if (equals == std::string_view::npos) {
    return invalid_argument(where + " has no value; expected " + option->name + "=" +
                            option->expected);
  }
  if (std::ranges::find(given, option->name) != given.end()) {
    return invalid_argument(where + " is given twice");
  }
  given.push_back(option->name);
  const std::string_view value = text.substr(equals + 1);
  if (!option->store(spec, value)) {
    return invalid_argument(where + " is '" + std::string(value) + "'; expected " +
                            option->expected);
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Grammar& grammar : grammars()) out.push_back(grammar.name);
    return out;
  }();
  return names;
}

Result<PolicySpec> parse_policy_spec(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto grammar = std::ranges::find(grammars(), parts.front(), &Grammar::name);
  if (grammar == grammars().end()) {
    return invalid_argument("unknown policy '" + std::string(parts.front()) + "'; expected " +
                            joined_names(policy_names()) +
                            did_you_mean(parts.front(), policy_names()));
  }
  PolicySpec spec;
  spec.name = grammar->name;
  spec.text = std::string(text);
  std::vector<std::string> given;
  for (const std::string_view part : std::span(parts).subspan(1)) {
    if (const auto applied = apply_option(*grammar, part, spec, given); !applied) {
      return applied.error();
    }
  }
  return spec;
}

Result<std::vector<PolicySpec>> parse_policy_list(std::string_view text) {
  std::vector<PolicySpec> specs;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view entry = trimmed(part);
    if (entry.empty()) {
      return invalid_argument("policy list '" + std::string(text) +
                              "' has an empty entry; expected names separated by commas: " +
                              joined_names(policy_names()));
    }
    auto spec = parse_policy_spec(entry);
    if (!spec) return spec.error();
    specs.push_back(std::move(*spec));
  }
  return specs;
}

}  // namespace pudica
