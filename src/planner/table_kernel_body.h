// The loops of table_kernel.h for one instruction set. Included once for each by table_kernel.cpp,
// inside a namespace of its own and under that set's target, with these defined:
//   PUDICA_LANES    32-bit lanes of a vector
//   PUDICA_VECTORS  accumulators that stay in registers over the loop of modes
// Vectors are spelled out because compilers leave an array of accumulators in memory otherwise.
// No templates and no inlined helper: they would be compiled for another target.

using Vector = std::int32_t __attribute__((vector_size(4 * PUDICA_LANES)));
// The same without its alignment, and free to alias plain arrays.
using Unaligned = std::int32_t
    __attribute__((vector_size(4 * PUDICA_LANES), aligned(alignof(std::int32_t)), may_alias));

void row(const std::int32_t* next, const RowMode* modes, std::size_t count, std::int32_t end,
         std::int32_t* out) {
  constexpr std::int32_t kWidth = PUDICA_LANES * PUDICA_VECTORS;
  static_assert(kRowBlock % kWidth == 0);
  for (std::int32_t b = 0; b < end; b += kWidth) {
    Vector least[PUDICA_VECTORS];
    for (int v = 0; v < PUDICA_VECTORS; ++v) least[v] = Vector{} + kUnreachable;
    for (std::size_t m = 0; m < count; ++m) {
      const std::int32_t from = b - modes[m].cells;
      if (from <= -kWidth) break;
      const auto* in = reinterpret_cast<const Unaligned*>(next + from);
      const Vector kept = Vector{} + modes[m].kept;
      const Vector peak = Vector{} + modes[m].peak;
#pragma GCC unroll 8
      for (int v = 0; v < PUDICA_VECTORS; ++v) {
        const Vector sum = in[v] + kept;
        const Vector value = sum < peak ? peak : sum;
        least[v] = value < least[v] ? value : least[v];
      }
    }
    auto* to = reinterpret_cast<Unaligned*>(out + b);
#pragma GCC unroll 8
    for (int v = 0; v < PUDICA_VECTORS; ++v) to[v] = least[v];
  }
}

void timed_row(TimedRow next, const RowMode* modes, std::size_t count, std::int32_t end,
               TimedRow out) {
  constexpr int kVectors = PUDICA_VECTORS / 2;  // two accumulators each
  constexpr std::int32_t kWidth = PUDICA_LANES * kVectors;
  static_assert(kRowBlock % kWidth == 0);
  for (std::int32_t b = 0; b < end; b += kWidth) {
    Vector least[kVectors];
    Vector ticks[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      least[v] = Vector{} + kUnreachable;
      ticks[v] = Vector{};
    }
    for (std::size_t m = 0; m < count; ++m) {
      const std::int32_t from = b - modes[m].cells;
      if (from <= -kWidth) break;
      const auto* in = reinterpret_cast<const Unaligned*>(next.bytes + from);
      const auto* in_ticks = reinterpret_cast<const Unaligned*>(next.ticks + from);
      const Vector kept = Vector{} + modes[m].kept;
      const Vector peak = Vector{} + modes[m].peak;
      const Vector mode_ticks = Vector{} + modes[m].ticks;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vector sum = in[v] + kept;
        const Vector value = sum < peak ? peak : sum;
        const Vector time = in_ticks[v] + mode_ticks;
        ticks[v] = value < least[v] ? time : ticks[v];
        least[v] = value < least[v] ? value : least[v];
      }
    }
    auto* to = reinterpret_cast<Unaligned*>(out.bytes + b);
    auto* to_ticks = reinterpret_cast<Unaligned*>(out.ticks + b);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      to[v] = least[v];
      to_ticks[v] = ticks[v];
    }
  }
}

constexpr RowKernels kKernels{row, timed_row};
