#include "inspect/user_names.h"

#include <array>
#include <charconv>
#include <grp.h>
#include <pwd.h>

namespace pudica {
namespace {

using Buffer = std::array<char, 16384>;

}  // namespace

std::string user_name(unsigned user_id) {
  Buffer buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user_id, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(user_id);
}

std::string group_name(unsigned group_id) {
  Buffer buffer{};
  group entry{};
  group* found = nullptr;
  if (getgrgid_r(group_id, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->gr_name;
  }
  return std::to_string(group_id);
}

std::optional<unsigned> user_of_name(const std::string& name_or_number) {
  Buffer buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwnam_r(name_or_number.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
      found != nullptr) {
    return found->pw_uid;
  }
  unsigned number = 0;
  const char* const end = name_or_number.data() + name_or_number.size();
  const auto [rest, status] = std::from_chars(name_or_number.data(), end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  return number;
}

}  // namespace pudica
