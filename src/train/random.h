// Random numbers that are the same on every platform, for data order and masking.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace pudica::train {

// SplitMix64 (Steele, Lea, Flood 2014). Not for secrets. Not thread-safe.
class Random {
 public:
  // Streams of different (seed, stream) are independent for our purposes.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : state_(seed) {
    state_ = next() ^ (stream * 0xd1342543de82ef95ULL);
    state_ = next();
  }

  std::uint64_t next() {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return mixed ^ (mixed >> 31);
  }

  // Uniform in [0, bound), without bias. Requires: bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t rejected = -bound % bound;  // 2^64 mod bound
    std::uint64_t value = next();
    while (value < rejected) value = next();
    return value % bound;
  }

 private:
  std::uint64_t state_;
};

// Fisher-Yates; std::shuffle differs between libraries.
template <typename T>
void shuffle(std::span<T> items, Random& random) {
  for (std::size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[random.below(left)]);
  }
}

}  // namespace pudica::train
