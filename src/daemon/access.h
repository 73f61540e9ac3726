// Who may see and steer what: by the user at the other end of a connection, as the kernel says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pudica/result.h"

namespace pudica::daemon {

enum class Transport : std::uint8_t { kUnix, kTcp };

// Whose request it is.
struct Caller {
  Transport transport = Transport::kUnix;
  std::optional<unsigned> user_id;  // nullopt: of another host, or not told
  std::string authorization;        // the header of that name
};

struct AccessOptions {
  unsigned user_id = 0;  // that the daemon runs as
  std::string token;     // lets its bearer read over TCP; empty: none
  // Over TCP everybody reads, without command lines; with a token nobody else does.
  bool everyone_reads = false;
};

// The rules of decision 26. An operator is the daemon's user or root; a run's owner is the user
// whose process registered it. Thread-safe: a value.
class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  [[nodiscard]] bool is_operator(const Caller& caller) const;
  // Over the socket everybody whom its rights admit.
  [[nodiscard]] bool may_read(const Caller& caller) const;
  // Steering, ending and speaking for a run: its owner and operators. `owner` nullopt: not known.
  [[nodiscard]] bool may_steer(const Caller& caller, std::optional<unsigned> owner) const;
  // A run's command line: whoever may steer it, and the bearer of the token.
  [[nodiscard]] bool sees_command(const Caller& caller, std::optional<unsigned> owner) const;
  [[nodiscard]] bool has_token() const { return !options_.token.empty(); }
  // "keeper, who runs pudicad, or root"
  [[nodiscard]] std::string operators() const;
  // Who reads over TCP, in a word of the API: operators, token or everyone.
  [[nodiscard]] std::string readers() const;

 private:
  [[nodiscard]] bool bears_token(const Caller& caller) const;

  AccessOptions options_;
};

// "user ada", "a user who is not known".
std::string name_of(const Caller& caller);

// The token that a file holds, without the blanks around it. Errors: kInvalidArgument naming the
// file where it cannot be read, others than its owner may, or it has fewer than 16 characters.
Result<std::string> read_token(const std::string& path);

}  // namespace pudica::daemon
