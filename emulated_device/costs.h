// What work takes on the card by its published rates: the longer of arithmetic and traffic, and a
// launch at least.
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

namespace pudica::emulated {

double copy_us(std::size_t bytes, cudaMemcpyKind kind);
double set_us(std::size_t bytes);
// A kernel tells only how many threads it has; each is taken to move kBytesPerThread.
double threads_us(dim3 grid, dim3 block);

struct Product {
  double m = 0;
  double n = 0;
  double k = 0;
  double count = 1;
  std::size_t item_bytes = 4;  // of what is multiplied
};
double product_us(const Product& product);

}  // namespace pudica::emulated
