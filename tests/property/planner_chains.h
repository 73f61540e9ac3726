// Random chains for the planner's property tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "pudica/planner.h"

namespace pudica::testing {

using Random = std::mt19937_64;

inline std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

enum class ChainKind {
  kUniform,        // every layer has the same modes
  kClasses,        // two classes of layers, as an encoder and a decoder
  kHeterogeneous,  // every layer its own: less kept is slower, transients vary
  kUnordered,      // bytes and times unrelated, bytes of either sign
  kTies,           // tiny numbers, so that many choices are equal
};
inline constexpr ChainKind kAllKinds[] = {ChainKind::kUniform, ChainKind::kClasses,
                                          ChainKind::kHeterogeneous, ChainKind::kUnordered,
                                          ChainKind::kTies};

// A layer whose modes keep less and less and take longer and longer.
inline std::vector<ChainMode> ordered_layer(Random& random, std::size_t modes) {
  std::vector<ChainMode> layer;
  std::int64_t kept = pick(random, 8'000'000, 30'000'000);
  std::int64_t time_ns = pick(random, 0, 1) * pick(random, 0, 200'000);
  for (std::size_t m = 0; m < modes; ++m) {
    layer.push_back({kept, kept + pick(random, 0, 10'000'000), time_ns});
    kept = pick(random, kept / 4, kept);
    time_ns += pick(random, 1, 3'000'000);
  }
  return layer;
}

inline std::vector<ChainMode> unordered_layer(Random& random, std::size_t modes) {
  std::vector<ChainMode> layer;
  for (std::size_t m = 0; m < modes; ++m) {
    layer.push_back({pick(random, -2'000'000, 9'000'000), pick(random, -3'000'000, 12'000'000),
                     pick(random, 0, 5'000'000)});
  }
  return layer;
}

inline std::vector<ChainMode> tied_layer(Random& random, std::size_t modes) {
  std::vector<ChainMode> layer;
  for (std::size_t m = 0; m < modes; ++m) {
    layer.push_back({pick(random, 0, 3), pick(random, 0, 5), pick(random, 0, 3)});
  }
  return layer;
}

inline Chain random_chain(Random& random, ChainKind kind, std::size_t layers, std::size_t modes) {
  Chain chain;
  const std::vector<ChainMode> first = ordered_layer(random, modes);
  const std::vector<ChainMode> second = ordered_layer(random, modes);
  for (std::size_t i = 0; i < layers; ++i) {
    switch (kind) {
      case ChainKind::kUniform:
        chain.layers.push_back(first);
        break;
      case ChainKind::kClasses:
        chain.layers.push_back(2 * i < layers ? first : second);
        break;
      case ChainKind::kHeterogeneous:
        chain.layers.push_back(ordered_layer(random, modes));
        break;
      case ChainKind::kUnordered:
        chain.layers.push_back(unordered_layer(random, modes));
        break;
      case ChainKind::kTies:
        chain.layers.push_back(tied_layer(random, modes));
        break;
    }
  }
  const bool tiny = kind == ChainKind::kTies;
  chain.tail_bytes = pick(random, 0, tiny ? 4 : 20'000'000);
  if (!tiny) {
    // Gradients of later layers: an earlier layer's backward has them all.
    std::int64_t gradients = pick(random, -3'000'000, 3'000'000);
    for (std::size_t i = layers; i-- > 0;) {
      for (ChainMode& mode : chain.layers[i])
        mode.peak_bytes += std::max<std::int64_t>(0, gradients);
      gradients += pick(random, 0, 2'000'000);
    }
  }
  return chain;
}

}  // namespace pudica::testing
