// Candidates: the modes of a chain that can be part of a best plan, flat and sorted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pudica/planner.h"
#include "pudica/result.h"

namespace pudica::planner {

// A mode that no other of its layer beats in kept bytes, peak and time together.
struct Candidate {
  std::int64_t kept_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t time_ns = 0;  // over the layer's fastest mode
  std::uint8_t source = 0;   // index into Chain::layers[i]
};

// One candidate a layer, by its index in the layer's candidates.
using Choice = std::vector<std::uint8_t>;

// Exact peak and time of a choice; the time is over the fastest choice.
struct Totals {
  std::int64_t peak_bytes = 0;
  std::int64_t time_ns = 0;
};

// Reused from chain to chain. Each layer's candidates are in ascending time; the first has time 0.
class Candidates {
 public:
  // Errors: kInvalidArgument for an empty layer, more than 256 modes, or a time
  // below 0 or above 2^50 ns.
  Result<void> collect(const Chain& chain);

  [[nodiscard]] std::size_t layers() const { return first_.size() - 1; }
  [[nodiscard]] std::size_t first(std::size_t layer) const { return first_[layer]; }
  [[nodiscard]] std::span<const Candidate> of(std::size_t layer) const {
    return {modes_.data() + first_[layer], first_[layer + 1] - first_[layer]};
  }
  [[nodiscard]] std::span<const Candidate> all() const { return modes_; }
  [[nodiscard]] std::int64_t tail_bytes() const { return tail_bytes_; }
  // Sum of the layers' fastest times: part of every plan.
  [[nodiscard]] std::int64_t fastest_ns() const { return fastest_ns_; }
  // Sum of the layers' slowest candidates: no plan of candidates takes longer.
  [[nodiscard]] std::int64_t slowest_ns() const { return slowest_ns_; }

  // floors()[i]: the least R_i (reference: the recursion of planner.h); floors()[layers()] = tail.
  [[nodiscard]] std::span<const std::int64_t> floors() const { return floors_; }

  [[nodiscard]] Totals totals(const Choice& choice) const;

  // The fastest candidate that needs no more bytes than `mode`. Requires: a mode of that layer.
  [[nodiscard]] std::uint8_t candidate_for(std::size_t layer, const ChainMode& mode) const;

 private:
  void collect_layer(const std::vector<ChainMode>& layer);
  void compute_floors();

  std::vector<Candidate> modes_;
  std::vector<Candidate> sorted_;
  std::vector<std::size_t> first_{0};
  std::vector<std::int64_t> floors_;
  std::int64_t tail_bytes_ = 0;
  std::int64_t fastest_ns_ = 0;
  std::int64_t slowest_ns_ = 0;
};

}  // namespace pudica::planner
