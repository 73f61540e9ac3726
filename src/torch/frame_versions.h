// Version counters of saved tensors: hooks switch autograd's own check off, so frames do it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace pudica::hooks {

inline std::uint32_t version_of(const at::Tensor& tensor) {
  return static_cast<std::uint32_t>(tensor._version());
}

inline void require_unmodified(std::uint32_t now, std::uint32_t then) {
  TORCH_CHECK(now == then,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: it is at version ",
              now, "; expected version ", then, " instead");
}

}  // namespace pudica::hooks
