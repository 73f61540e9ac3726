// Made-up segments whose allocations are known functions of the shape: the truth that the
// predictor is judged by.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "pudica/layer_profile.h"
#include "pudica/shape_key.h"

namespace pudica::testing {

// coefficient * product of dimension^exponent
struct Term {
  std::int64_t coefficient = 0;
  std::vector<int> exponents;

  [[nodiscard]] std::int64_t at(const ShapeKey& shape) const {
    std::int64_t value = coefficient;
    for (std::size_t d = 0; d < exponents.size(); ++d) {
      for (int e = 0; e < exponents[d]; ++e) value *= shape[d];
    }
    return value;
  }
};

// A sum of terms, allocated (+1) or freed (-1).
struct Event {
  int sign = 1;
  std::vector<Term> terms;
};

struct SyntheticSegment {
  std::vector<Event> events;
  std::int64_t granularity_bytes = 1;

  [[nodiscard]] SegmentSample at(const ShapeKey& shape) const {
    SegmentSample sample;
    for (const Event& event : events) {
      std::int64_t size = 0;
      for (const Term& term : event.terms) size += term.at(shape);
      size = (size + granularity_bytes - 1) / granularity_bytes * granularity_bytes;
      sample.deltas.push_back(event.sign * size);
      sample.net_bytes += event.sign * size;
      sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
    }
    return sample;
  }
};

inline SegmentSample without_log(SegmentSample sample) {
  sample.deltas.clear();
  return sample;
}

// Random segments as layers make them: most blocks are batch * length * hidden, some quadratic,
// some constant; blocks are freed in any order, a few of them older than the segment.
class SegmentGenerator {
 public:
  SegmentGenerator(std::uint64_t seed, std::size_t dimensions)
      : random_(seed), dimensions_(dimensions) {}

  std::int64_t uniform(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  ShapeKey shape(std::int64_t largest_batch = 32, std::int64_t largest_length = 512) {
    std::vector<std::int64_t> values{uniform(2, largest_batch)};
    while (values.size() < dimensions_) values.push_back(uniform(16, largest_length));
    return ShapeKey(std::span<const std::int64_t>(values));
  }

  Term term() {
    Term term{1, std::vector<int>(dimensions_)};
    const std::int64_t kind = uniform(0, 9);
    const auto any_length = [&] { return static_cast<std::size_t>(uniform(1, lengths())); };
    if (kind == 0) {  // parameters, statistics
      term.coefficient = uniform(1, 100000);
      return term;
    }
    if (kind == 1) {  // masks and positions
      term.coefficient = uniform(1, 16);
      term.exponents[any_length()] += 1;
      if (uniform(0, 1) == 1) term.exponents[any_length()] += 1;
      return term;
    }
    term.exponents[0] = 1;
    if (kind == 2) {  // pooled rows
      term.coefficient = uniform(1, 4096);
      return term;
    }
    term.exponents[any_length()] += 1;
    if (kind <= 4) {  // attention
      term.exponents[any_length()] += 1;
      term.coefficient = 2 * uniform(1, 16);
      return term;
    }
    term.coefficient = (std::int64_t{1} << uniform(0, 3)) * uniform(16, 1024);
    return term;
  }

  SyntheticSegment segment(std::size_t events) {
    SyntheticSegment segment;
    std::vector<Term> live;
    while (segment.events.size() < events) {
      const std::int64_t choice = uniform(0, 9);
      if (choice < 6 || live.empty()) {
        live.push_back(term());
        segment.events.push_back({1, {live.back()}});
      } else if (choice < 9) {
        const auto index = uniform(0, static_cast<std::int64_t>(live.size()) - 1);
        segment.events.push_back({-1, {live[static_cast<std::size_t>(index)]}});
        live.erase(live.begin() + index);
      } else {
        segment.events.push_back({-1, {term()}});
      }
    }
    return segment;
  }

 private:
  [[nodiscard]] std::int64_t lengths() const { return static_cast<std::int64_t>(dimensions_) - 1; }

  std::mt19937_64 random_;
  std::size_t dimensions_;
};

}  // namespace pudica::testing
