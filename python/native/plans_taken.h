// PlansTaken: what a policy planned, shape by shape, where the policy itself keeps no plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "pudica/bytes.h"
#include "pudica/plan.h"
#include "pudica/shape_key.h"
#include "pudica/torch.h"

namespace pudica::python {

// The latest plan of each shape, of at most kMostShapes. Not thread-safe: one owner thread.
class PlansTaken {
 public:
  static constexpr std::size_t kMostShapes = 512;

  void note(const StepReport& report);

  // An array in which a plan has the fields that it has in a snapshot (docs/http_api.md); what only
  // a plan cache knows is null.
  [[nodiscard]] std::string to_json() const;

 private:
  struct Taken {
    PlanPtr plan;
    Bytes measured_peak_bytes{0};  // of the latest step
    std::int64_t uses = 0;
    std::uint64_t first_step = 0;
    std::uint64_t last_step = 0;
  };

  std::map<ShapeKey, Taken> taken_;
};

}  // namespace pudica::python
