// Reads typed fields of one JSON object and remembers what was wrong first.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "inspect/json_values.h"
#include "pudica/result.h"

namespace pudica::inspect {

// After the first error the remaining reads do nothing and return a zero value. Holds a reference
// to the value, which must outlive it. Not thread-safe.
class FieldReader {
 public:
  // `where` goes in front of every field's name: "profiles.segments[3]".
  FieldReader(const Json& object, std::string where);

  [[nodiscard]] bool ok() const { return !error_; }
  [[nodiscard]] Error error() const { return error_.value_or(Error{}); }
  [[nodiscard]] bool has(const char* name) const;

  // Integers of [least, most].
  std::int64_t integer(const char* name, std::int64_t least = 0,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  // nullopt for null.
  std::optional<std::int64_t> integer_or_null(const char* name);
  std::uint64_t identifier(const char* name);
  // Finite and >= 0.
  double number(const char* name);
  bool boolean(const char* name);
  std::string text(const char* name);
  Mode mode(const char* name);
  // Calls `read` for every element with its place; `read` returns its error, if any.
  using Element = std::function<std::optional<Error>(const Json& value, const std::string& place)>;
  void each(const char* name, const Element& read);
  // The field, to be read by a reader of its own; nullptr after an error.
  const Json* object(const char* name);

  void fail(const char* name, const std::string& what);
  void fail_with(const Error& error);

 private:
  const Json* find(const char* name);
  // What was seen instead.
  void refuse(const char* name, const Json& value, std::string_view expected);

  const Json& object_;
  std::string where_;
  std::optional<Error> error_;
};

}  // namespace pudica::inspect
