// Result<T>: a value or an Error. The member names are those of std::expected (C++23).
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace pudica {

enum class ErrorCode { kInvalidArgument, kNotFound, kCorrupt, kOverBudget, kUnavailable };

std::string_view to_string(ErrorCode code);

// What went wrong: the message names the thing, the value seen and the value expected.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;

  // The same error with "context: " in front, for callers that know more.
  [[nodiscard]] Error with_context(std::string_view context) const {
    return Error{code, std::string(context) + ": " + message};
  }
};

inline Error invalid_argument(std::string message) {
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

// Thrown when our own invariant is broken; only the outermost frame of a program catches it.
class BugError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// A value or an Error. value() without a value throws BugError. Thread-safe: a value.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return has_value(); }

  [[nodiscard]] T& value() & { return checked(); }
  [[nodiscard]] const T& value() const& { return const_cast<Result*>(this)->checked(); }
  [[nodiscard]] T&& value() && { return std::move(checked()); }
  [[nodiscard]] const Error& error() const {
    if (has_value()) throw BugError("Result: error() called on a value");
    return std::get<Error>(state_);
  }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] T value_or(T fallback) const {
    return has_value() ? std::get<T>(state_) : std::move(fallback);
  }

  template <typename F>
  auto and_then(F&& next) && -> decltype(next(std::declval<T>())) {
    if (!has_value()) return std::get<Error>(std::move(state_));
    return std::forward<F>(next)(std::get<T>(std::move(state_)));
  }

 private:
  T& checked() {
    if (!has_value()) throw BugError("Result: no value: " + std::get<Error>(state_).message);
    return std::get<T>(state_);
  }

  std::variant<T, Error> state_;
};

// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Error& error() const {
    if (!error_) throw BugError("Result: error() called on success");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace pudica
