// FatBinary: which compute capabilities a program brought its kernels for.
#pragma once

#include <vector>

namespace pudica::emulated {

class FatBinary {
 public:
  // `wrapper` as programs hand it to __cudaRegisterFatBinary; what is no such thing is empty.
  explicit FatBinary(const void* wrapper);

  // Of the kernels that a device of `capability` (80 is 8.0) runs: the newest that are not newer
  // than it. Where all are newer, the oldest: nothing is computed, and so the card can be tried.
  [[nodiscard]] int capability_for(int capability) const;

 private:
  std::vector<int> capabilities_;
};

}  // namespace pudica::emulated
