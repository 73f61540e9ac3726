// Products count and take time; their operands are neither read nor written.
#pragma once

#include <cstddef>
#include <cublas_v2.h>

#include "emulated_device/costs.h"

namespace pudica::emulated {

std::size_t item_bytes_of(cudaDataType type);
cublasStatus_t issue_product(cudaStream_t stream, const Product& product);

}  // namespace pudica::emulated
