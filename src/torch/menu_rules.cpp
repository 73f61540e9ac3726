#include "torch/menu_rules.h"

#include <algorithm>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace pudica::hooks {
namespace {

constexpr std::string_view kOwn = "aten::";

std::string_view without_namespace(std::string_view name) {
  if (name.starts_with(kOwn)) name.remove_prefix(kOwn.size());
  return name;
}

}  // namespace

bool is_named(std::string_view rule, std::string_view name) {
  rule = without_namespace(rule);
  if (!rule.ends_with('*')) return rule == name;
  rule.remove_suffix(1);
  return name.starts_with(rule);
}

std::optional<std::string> rule_without_operator(const MenuRules& rules) {
  if (rules.keep_operators.empty() && rules.recompute_operators.empty()) return std::nullopt;
  const auto known = c10::Dispatcher::singleton().getAllOpNames();
  for (const auto* list : {&rules.keep_operators, &rules.recompute_operators}) {
    for (const std::string& rule : *list) {
      const bool found = std::ranges::any_of(known, [&rule](const c10::OperatorName& op) {
        return is_named(rule, without_namespace(op.name));
      });
      if (!found) return rule;
    }
  }
  return std::nullopt;
}

}  // namespace pudica::hooks
