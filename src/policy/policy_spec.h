// Policy specs: the text form of a policy and its options, `name[:key=value]...`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pudica/eviction.h"
#include "pudica/mode.h"
#include "pudica/result.h"

namespace pudica {

// Which of Mimose's two greedy rules: Algorithm 1 of the paper, or what the published code does.
enum class MimoseRule : std::uint8_t { kPaper, kCode };

// A policy's name and its options, each at its default where not given. Options that do not belong
// to the named policy stay at their defaults and mean nothing.
struct PolicySpec {
  std::string name;
  std::string text;  // as given: what results and reports call the policy

  std::vector<Mode::Kind> menu;  // pudica: the kinds that may be planned; empty: all
  MimoseRule mimose_rule = MimoseRule::kPaper;
  double mimose_buffer_fraction = 0;      // of the budget, held back, in [0, 1)
  std::int64_t mimose_warmup_steps = 10;  // >= 2: the first step gives no whole-model sample
  std::int64_t every_n = 2;               // >= 1: layers 0, n, 2n, ... are recomputed
  Eviction dtr_eviction;
  std::vector<std::string> sac_save;  // operators by name; empty: products and attention
};

// The names of all policies, in the order in which help texts list them.
const std::vector<std::string>& policy_names();

// Reads one spec: "pudica:menu=keep+full", "mimose:rule=code:buffer=0.1", "every_n:n=2".
// Errors: kInvalidArgument naming the policy, the option seen, those expected and the nearest name.
Result<PolicySpec> parse_policy_spec(std::string_view text);

// Reads specs separated by commas; spaces around each are ignored. Errors: as above, and an empty
// entry.
Result<std::vector<PolicySpec>> parse_policy_list(std::string_view text);

}  // namespace pudica
