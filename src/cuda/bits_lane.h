// What one thread of the device does to its sixteen elements. Plain code, so that the host runs and
// tests it too.
#pragma once

#if defined(__CUDACC_RTC__)  // which has no standard library
namespace std {
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int64_t = long long;
}  // namespace std
#define PUDICA_LANE __host__ __device__ __forceinline__
#else
#include <cstdint>
#define PUDICA_LANE inline
#endif

namespace pudica::hooks {

// What packing found, in the device's memory.
struct FoundBits {
  std::uint32_t value;    // the elements that are not 0; 0: there is none
  std::uint32_t strange;  // 1: there is more than one value beside 0
};

}  // namespace pudica::hooks

namespace pudica::hooks::lane {

// Every loop over them has this bound alone: unrolled, they stay in registers.
constexpr int kElements = 16;

template <typename Word>
struct alignas(16) Elements {
  Word at[kElements];
};

// Which elements are not 0, one bit each. `value` is the first of them that this thread has met, 0:
// none yet; one that differs from it sets `strange`.
template <typename Word>
PUDICA_LANE std::uint16_t pack(const Elements<Word>& in, Word& value, bool& strange) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kElements; ++i) {
    const Word element = in.at[i];
    if (element == 0) continue;
    if (value == 0) value = element;
    strange = strange || element != value;
    bits |= std::uint32_t{1} << static_cast<unsigned>(i);
  }
  return static_cast<std::uint16_t>(bits);
}

template <typename Word>
PUDICA_LANE Elements<Word> unpack(std::uint16_t bits, Word value) {
  Elements<Word> out;
  for (int i = 0; i < kElements; ++i) {
    const bool set = (bits >> static_cast<unsigned>(i) & 1U) != 0;
    out.at[i] = set ? value : Word{0};
  }
  return out;
}

// The elements of group `group` out of `count`; 0 beyond the end. `aligned`: `in` is, to 16 bytes.
template <typename Word>
PUDICA_LANE Elements<Word> load(const Word* in, std::int64_t count, std::int64_t group,
                                bool aligned) {
  const std::int64_t begin = group * kElements;
  if (aligned && begin + kElements <= count) {
    return reinterpret_cast<const Elements<Word>*>(in)[group];
  }
  Elements<Word> out{};
  for (int i = 0; i < kElements; ++i) {
    if (begin + i < count) out.at[i] = in[begin + i];
  }
  return out;
}

template <typename Word>
PUDICA_LANE void store(const Elements<Word>& from, Word* out, std::int64_t count,
                       std::int64_t group, bool aligned) {
  const std::int64_t begin = group * kElements;
  if (aligned && begin + kElements <= count) {
    reinterpret_cast<Elements<Word>*>(out)[group] = from;
    return;
  }
  for (int i = 0; i < kElements; ++i) {
    if (begin + i < count) out[begin + i] = from.at[i];
  }
}

}  // namespace pudica::hooks::lane
