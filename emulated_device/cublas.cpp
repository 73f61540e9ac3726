// cuBLAS: handles with what is set on them, and products.
#include "emulated_device/cublas.h"

#include "emulated_device/counts.h"
#include "emulated_device/streams.h"

using namespace pudica::emulated;

namespace pudica::emulated {

std::size_t item_bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    default:
      return 4;
  }
}

cublasStatus_t issue_product(cudaStream_t stream, const Product& product) {
  products().fetch_add(1, std::memory_order_relaxed);
  product_flops().fetch_add(2 * product.m * product.n * product.k * product.count,
                            std::memory_order_relaxed);
  issue(stream, {product_us(product)});
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace pudica::emulated

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

namespace {

template <typename Type>
cublasStatus_t multiply(cublasHandle_t handle, int m, int n, int k, long long count = 1) {
  return issue_product(handle->stream,
                       {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k),
                        static_cast<double>(count), sizeof(Type)});
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->pointers;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                              int n, int k, const float*, const float*, int, const float*, int,
                              const float*, float*, int) {
  return multiply<float>(handle, m, n, k);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                              int n, int k, const double*, const double*, int, const double*, int,
                              const double*, double*, int) {
  return multiply<double>(handle, m, n, k);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t,
                                         cublasOperation_t, int m, int n, int k, const float*,
                                         const float*, int, long long, const float*, int, long long,
                                         const float*, float*, int, long long, int count) {
  return multiply<float>(handle, m, n, k, count);
}

cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t,
                                         cublasOperation_t, int m, int n, int k, const double*,
                                         const double*, int, long long, const double*, int,
                                         long long, const double*, double*, int, long long,
                                         int count) {
  return multiply<double>(handle, m, n, k, count);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m,
                            int n, int k, const void*, const void*, cudaDataType type, int,
                            const void*, cudaDataType, int, const void*, void*, cudaDataType, int,
                            cublasComputeType_t, cublasGemmAlgo_t) {
  return issue_product(handle->stream, {static_cast<double>(m), static_cast<double>(n),
                                        static_cast<double>(k), 1, item_bytes_of(type)});
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t,
                                          cublasOperation_t, int m, int n, int k, const void*,
                                          const void*, cudaDataType type, int, long long,
                                          const void*, cudaDataType, int, long long, const void*,
                                          void*, cudaDataType, int, long long, int count,
                                          cublasComputeType_t, cublasGemmAlgo_t) {
  return issue_product(handle->stream,
                       {static_cast<double>(m), static_cast<double>(n), static_cast<double>(k),
                        static_cast<double>(count), item_bytes_of(type)});
}

}  // extern "C"
