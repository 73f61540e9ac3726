// Bytes of tensors of any layout.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pudica::hooks {

// Of its elements; of one that is not strided (sparse) 0: torch tells none of those.
inline std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

}  // namespace pudica::hooks
