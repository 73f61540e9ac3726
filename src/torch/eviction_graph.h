// EvictionGraph: the saved storages of one layer call as rules of eviction see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "pudica/eviction.h"

namespace pudica::hooks {

// What making a storage again takes while all others are there.
struct EvictionNode {
  double seconds = 0;
  std::vector<std::uint32_t> inputs;  // other nodes that this reads
};
using EvictionNodes = std::shared_ptr<const std::vector<EvictionNode>>;

// Not thread-safe.
class EvictionGraph {
 public:
  // All are there, and were made `now` (seconds of any clock).
  EvictionGraph(EvictionNodes nodes, double now);

  [[nodiscard]] std::size_t size() const { return nodes_->size(); }
  [[nodiscard]] bool is_evicted(std::size_t node) const { return evicted_[node]; }
  void read(std::size_t node, double now) { last_read_[node] = now; }
  void evict(std::size_t node);
  void make_again(std::size_t node, double now);

  // The least goes. `bytes`: of this one now. `random` is drawn from by kRandom alone.
  [[nodiscard]] double score(EvictionRule rule, std::size_t node, std::int64_t bytes, double now,
                             std::mt19937_64& random) const;

 private:
  // Neighbours that went, merged for good.
  struct Merged {
    std::size_t parent = 0;
    double seconds = 0;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  using Lists = std::vector<std::vector<std::uint32_t>>;

  [[nodiscard]] std::size_t root_of(std::size_t merged) const;
  [[nodiscard]] const std::vector<std::uint32_t>& inputs_of(std::size_t node) const {
    return (*nodes_)[node].inputs;
  }
  // Over evicted ones alone, this one left out; `down`: its readers, not its inputs.
  [[nodiscard]] double sum_of_evicted(std::size_t node, bool down) const;
  [[nodiscard]] double sum_of_merged(std::size_t node) const;
  [[nodiscard]] double dearest_inputs(std::size_t node) const;

  EvictionNodes nodes_;
  Lists readers_;
  std::vector<bool> evicted_;
  std::vector<double> last_read_;
  std::vector<int> recomputes_;
  std::vector<std::size_t> merged_of_;  // by node; kNone: it is there
  mutable std::vector<Merged> merged_;  // paths are shortened as they are walked
};

}  // namespace pudica::hooks
