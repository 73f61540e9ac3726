// What the user's rules for menus say of an operator.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pudica/torch.h"

namespace pudica::hooks {

// Whether a rule means the operator of this name ("gelu", "my::operator": the namespace aten left
// out, as tapes have it).
bool is_named(std::string_view rule, std::string_view name);

// The first rule that names no operator that torch knows now.
std::optional<std::string> rule_without_operator(const MenuRules& rules);

}  // namespace pudica::hooks
