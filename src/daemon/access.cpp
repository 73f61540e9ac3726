#include "daemon/access.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/user_names.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kLeastTokenCharacters = 16;
constexpr std::size_t kMostTokenBytes = 4096;

// In a time that does not tell how much of it is right.
bool same_secret(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size() && i < expected.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected[i]);
  }
  return difference == 0;
}

// RFC 4648; what is no base64 ends it.
std::string decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  unsigned held = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = (bits << 6U) | static_cast<unsigned>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>((bits >> held) & 0xffU);
  }
  return out;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlanks) - first + 1));
}

}  // namespace

bool Access::is_operator(const Caller& caller) const {
  return caller.user_id && (*caller.user_id == options_.user_id || *caller.user_id == 0);
}

bool Access::bears_token(const Caller& caller) const {
  constexpr std::string_view kBearer = "Bearer ";
  constexpr std::string_view kBasic = "Basic ";  // what a browser asks its user for
  if (!has_token()) return false;
  const std::string_view header = caller.authorization;
  if (header.starts_with(kBearer)) {
    return same_secret(header.substr(kBearer.size()), options_.token);
  }
  if (!header.starts_with(kBasic)) return false;
  const std::string pair = decode_base64(header.substr(kBasic.size()));
  const std::size_t colon = pair.find(':');
  return colon != std::string::npos &&
         same_secret(std::string_view(pair).substr(colon + 1), options_.token);
}

bool Access::may_read(const Caller& caller) const {
  if (caller.transport == Transport::kUnix || is_operator(caller) || bears_token(caller)) {
    return true;
  }
  return options_.everyone_reads && !has_token();
}

bool Access::may_steer(const Caller& caller, std::optional<unsigned> owner) const {
  return is_operator(caller) || (owner && caller.user_id == owner);
}

bool Access::sees_command(const Caller& caller, std::optional<unsigned> owner) const {
  return may_steer(caller, owner) || bears_token(caller);
}

std::string Access::operators() const {
  if (options_.user_id == 0) return "root, who runs pudicad";
  return user_name(options_.user_id) + ", who runs pudicad, or root";
}

std::string Access::readers() const {
  if (has_token()) return "token";
  return options_.everyone_reads ? "everyone" : "operators";
}

std::string name_of(const Caller& caller) {
  return caller.user_id ? "user " + user_name(*caller.user_id) : "a user who is not known";
}

Result<std::string> read_token(const std::string& path) {
  const auto refused = [&path](const std::string& why) {
    return invalid_argument("token file '" + path + "': " + why);
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refused(std::strerror(errno));
  struct stat status {};
  const bool told = ::fstat(fd, &status) == 0;
  std::array<char, kMostTokenBytes> text{};
  const ssize_t size = ::read(fd, text.data(), text.size());
  ::close(fd);
  if (!told || !S_ISREG(status.st_mode) || size < 0) return refused("cannot be read");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return refused("others than its owner may use it, expected mode 0600");
  }
  std::string token = trimmed({text.data(), static_cast<std::size_t>(size)});
  if (token.size() >= kLeastTokenCharacters) return token;
  return refused("holds " + std::to_string(token.size()) + " characters, expected at least " +
                 std::to_string(kLeastTokenCharacters));
}

}  // namespace pudica::daemon
