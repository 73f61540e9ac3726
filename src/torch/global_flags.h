// GlobalFlags: settings of the process that choose which kernel an operator runs, and the type of
// what it makes.
#pragma once

#include <array>
#include <cstdint>

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>

namespace pudica::hooks {

// A layer that ran under `sdpa_kernel(...)`, another matmul precision, default type or number of
// threads gives other bits, and may save other tensors, where the backward runs it again without. A
// value: about 0.3 us to read.
class GlobalFlags {
 public:
  static GlobalFlags capture();
  // Sets those that are not as here.
  void apply() const;
  bool operator==(const GlobalFlags&) const = default;

 private:
  std::uint32_t bits_ = 0;  // by number of the switch
  int threads_ = 0;
  at::ScalarType default_type_ = at::kFloat;
  std::array<at::Float32Precision, 4> precisions_{};
};

// Puts flags in force for its lifetime; does nothing where they are.
class GlobalFlagsGuard {
 public:
  explicit GlobalFlagsGuard(const GlobalFlags& flags) : before_(GlobalFlags::capture()) {
    changes_ = !(before_ == flags);
    if (changes_) flags.apply();
  }
  ~GlobalFlagsGuard() {
    if (changes_) before_.apply();
  }
  GlobalFlagsGuard(const GlobalFlagsGuard&) = delete;
  GlobalFlagsGuard& operator=(const GlobalFlagsGuard&) = delete;

 private:
  GlobalFlags before_;
  bool changes_ = false;
};

}  // namespace pudica::hooks
