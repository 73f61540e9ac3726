// EvictionRule: which saved tensor goes next where memory is short and no plan says it.
#pragma once

#include <cstdint>

namespace pudica {

// Dynamic tensor rematerialisation (DTR, arXiv 2006.09616) and its relatives: the tensor of the
// least score goes. c: seconds of the operators that make it; stale: seconds since it was read.
enum class EvictionRule : std::uint8_t {
  kDtr,        // (c + those of evicted ancestors + of evicted descendants) / (size * stale)
  kDtrEq,      // the same, the neighbours' kept in a union-find that is never split
  kLocal,      // c / (size * stale)
  kLru,        // the one read longest ago
  kSize,       // the largest
  kMsps,       // (c + those of evicted ancestors) / size
  kRandom,     // any
  kMegEngine,  // MegEngine's: evicted inputs' cost over size and staleness, rising by recomputes
};

struct Eviction {
  EvictionRule rule = EvictionRule::kDtr;
  std::uint64_t seed = 1;  // of kRandom
};

}  // namespace pudica
