// Names of the machine's users and groups. All functions are thread-safe.
#pragma once

#include <optional>
#include <string>

namespace pudica {

// The name of a user or group, else its number.
std::string user_name(unsigned user_id);
std::string group_name(unsigned group_id);
// By name or number; nullopt: the machine has no such user.
std::optional<unsigned> user_of_name(const std::string& name_or_number);

}  // namespace pudica
