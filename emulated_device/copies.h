// Copies and settings of memory, issued to streams.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

namespace pudica::emulated {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;  // a row
  // Rows, and from one to the next.
  std::size_t rows = 1;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
};
cudaError_t issue_copy(const Copy& copy, cudaStream_t stream);
cudaError_t issue_copy_taking(const Copy& copy, double microseconds, cudaStream_t stream);
cudaError_t issue_set(void* at, int value, std::size_t bytes, cudaStream_t stream);

}  // namespace pudica::emulated
