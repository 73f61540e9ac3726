// Choices made without a table: the fastest that fits layer by layer, and single upgrades.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"

namespace pudica::planner {

// From the first layer on, the fastest mode after which the rest can still fit. Exact bytes.
// Requires: budget_bytes >= candidates.floors()[0].
void fastest_first(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice);

// Improves a choice that fits by the single change of mode that saves most time, repeated until
// none fits. Keeps its buffers. Not thread-safe.
class Polish {
 public:
  // Requires: the choice fits budget_bytes.
  void run(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice);

 private:
  bool upgrade_once(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice);

  std::vector<std::int64_t> room_;  // [i]: bytes that layers i.. can grow by and still fit
};

}  // namespace pudica::planner
