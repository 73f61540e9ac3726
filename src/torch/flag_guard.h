// FlagGuard: a flag that is set for a scope.
#pragma once

#include <utility>

namespace pudica::hooks {

class FlagGuard {
 public:
  explicit FlagGuard(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
  ~FlagGuard() { flag_ = before_; }
  FlagGuard(const FlagGuard&) = delete;
  FlagGuard& operator=(const FlagGuard&) = delete;

 private:
  bool& flag_;
  bool before_;
};

}  // namespace pudica::hooks
