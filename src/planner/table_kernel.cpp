#include "planner/table_kernel.h"

#include <cstddef>

#include "planner/scaling.h"

// Dispatch is by pointer and not by an ifunc (target_clones): sanitizers do not support code that
// runs while symbols are being resolved.
namespace pudica::planner {
namespace {

namespace baseline {
#define PUDICA_LANES 4
#define PUDICA_VECTORS 8
#define PUDICA_TIMED_VECTORS 4
#include "planner/table_kernel_body.inc"
#undef PUDICA_LANES
#undef PUDICA_VECTORS
#undef PUDICA_TIMED_VECTORS
}  // namespace baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PUDICA_X86_KERNELS 1

#pragma GCC push_options
#pragma GCC target("sse4.1")
namespace sse41 {
#define PUDICA_LANES 4
#define PUDICA_VECTORS 8
#define PUDICA_TIMED_VECTORS 4
#include "planner/table_kernel_body.inc"
#undef PUDICA_LANES
#undef PUDICA_VECTORS
#undef PUDICA_TIMED_VECTORS
}  // namespace sse41
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
#define PUDICA_LANES 8
#define PUDICA_VECTORS 8
#define PUDICA_TIMED_VECTORS 4
#include "planner/table_kernel_body.inc"
#undef PUDICA_LANES
#undef PUDICA_VECTORS
#undef PUDICA_TIMED_VECTORS
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
namespace avx512 {
#define PUDICA_LANES 16
#define PUDICA_VECTORS 4
#define PUDICA_TIMED_VECTORS 4
#include "planner/table_kernel_body.inc"
#undef PUDICA_LANES
#undef PUDICA_VECTORS
#undef PUDICA_TIMED_VECTORS
}  // namespace avx512
#pragma GCC pop_options
#endif

}  // namespace

std::vector<RowKernels> all_row_kernels() {
  std::vector<RowKernels> kernels{baseline::kKernels};
#if defined(PUDICA_X86_KERNELS)
  if (__builtin_cpu_supports("sse4.1") != 0) kernels.push_back(sse41::kKernels);
  if (__builtin_cpu_supports("avx2") != 0) kernels.push_back(avx2::kKernels);
  if (__builtin_cpu_supports("avx512f") != 0) kernels.push_back(avx512::kKernels);
#endif
  return kernels;
}

const RowKernels& row_kernels() {
  static const RowKernels chosen = all_row_kernels().back();
  return chosen;
}

}  // namespace pudica::planner
