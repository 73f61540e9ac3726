#include "planner/table_kernel.h"

#include "planner/scaling.h"

// One body, inlined into a function for each instruction set. Dispatch is by pointer and not by
// an ifunc: sanitizers do not support code that runs while symbols are being resolved.
#define PUDICA_INLINE inline __attribute__((always_inline))

namespace pudica::planner {
namespace {

PUDICA_INLINE void row_body(const std::int32_t* next, std::span<const RowMode> modes,
                            std::int32_t end, std::int32_t* out) {
  for (std::int32_t b = 0; b < end; b += kRowBlock) {
    std::int32_t least[kRowBlock];
    for (std::int32_t& cell : least) cell = kUnreachable;
    for (const RowMode& mode : modes) {
      const std::int32_t from = b - mode.cells;
      if (from <= -kRowBlock) break;
      const std::int32_t* __restrict in = next + from;
      const std::int32_t kept = mode.kept;
      const std::int32_t peak = mode.peak;
      for (std::int32_t j = 0; j < kRowBlock; ++j) {
        std::int32_t value = in[j] + kept;
        value = value < peak ? peak : value;
        least[j] = least[j] < value ? least[j] : value;
      }
    }
    std::int32_t* __restrict to = out + b;
    for (std::int32_t j = 0; j < kRowBlock; ++j) to[j] = least[j];
  }
}

PUDICA_INLINE void timed_row_body(TimedRow next, std::span<const RowMode> modes, std::int32_t end,
                                  TimedRow out) {
  for (std::int32_t b = 0; b < end; b += kRowBlock) {
    std::int32_t least[kRowBlock];
    std::int32_t ticks[kRowBlock];
    for (std::int32_t j = 0; j < kRowBlock; ++j) {
      least[j] = kUnreachable;
      ticks[j] = 0;
    }
    for (const RowMode& mode : modes) {
      const std::int32_t from = b - mode.cells;
      if (from <= -kRowBlock) break;
      const std::int32_t* __restrict in = next.bytes + from;
      const std::int32_t* __restrict in_ticks = next.ticks + from;
      const std::int32_t kept = mode.kept;
      const std::int32_t peak = mode.peak;
      const std::int32_t mode_ticks = mode.ticks;
      for (std::int32_t j = 0; j < kRowBlock; ++j) {
        std::int32_t value = in[j] + kept;
        value = value < peak ? peak : value;
        const std::int32_t time = in_ticks[j] + mode_ticks;
        const bool less = value < least[j];
        ticks[j] = less ? time : ticks[j];
        least[j] = less ? value : least[j];
      }
    }
    std::int32_t* __restrict to = out.bytes + b;
    std::int32_t* __restrict to_ticks = out.ticks + b;
    for (std::int32_t j = 0; j < kRowBlock; ++j) {
      to[j] = least[j];
      to_ticks[j] = ticks[j];
    }
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses)
#define PUDICA_ROW_KERNELS(name, attribute)                                                        \
  attribute void row_##name(const std::int32_t* next, std::span<const RowMode> modes,              \
                            std::int32_t end, std::int32_t* out) {                                 \
    row_body(next, modes, end, out);                                                               \
  }                                                                                                \
  attribute void timed_row_##name(TimedRow next, std::span<const RowMode> modes, std::int32_t end, \
                                  TimedRow out) {                                                  \
    timed_row_body(next, modes, end, out);                                                         \
  }                                                                                                \
  constexpr RowKernels kernels_##name{row_##name, timed_row_##name};
// NOLINTEND(bugprone-macro-parentheses)

PUDICA_ROW_KERNELS(baseline, )
#if defined(__x86_64__)
PUDICA_ROW_KERNELS(sse41, __attribute__((target("sse4.1"))))
PUDICA_ROW_KERNELS(avx2, __attribute__((target("avx2"))))
#endif

const RowKernels& choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) return kernels_avx2;
  if (__builtin_cpu_supports("sse4.1") != 0) return kernels_sse41;
#endif
  return kernels_baseline;
}

}  // namespace

const RowKernels& row_kernels() {
  static const RowKernels& chosen = choose();
  return chosen;
}

}  // namespace pudica::planner
