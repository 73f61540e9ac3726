// Proof: a bounded search for a plan better than the best known, or for evidence that there is
// none.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"
#include "planner/lp_certificate.h"
#include "planner/scaling.h"
#include "planner/table.h"

namespace pudica::planner {

// What is known of the optimum.
struct Incumbent {
  Choice choice;              // fits the budget
  std::int64_t time_ns = 0;   // of it, over the fastest choice
  std::int64_t bound_ns = 0;  // no choice that fits is faster
};

struct ProofOptions {
  std::int64_t budget_bytes = 0;
  std::int64_t good_enough_ns = 0;  // savings below this are not looked for
  std::int32_t states = 0;          // kept in all, a share of them each layer
};

// Branch and bound from the first layer on. A state is a choice of the layers so far: the bytes
// that it holds and its time; of two, one that holds no less and takes no less is dropped. So is
// one whose time and least remaining time, by the multipliers of the LP certificate and by the
// table, promise no saving; and where a layer has too many, those that promise least. The least
// that those promised is the new bound. Keeps its buffers. Not thread-safe.
class Proof {
 public:
  // Improves choice, time or bound. Requires: bound_ns() of the certificate and build() of the
  // table were last called for this budget.
  void run(const Candidates& candidates, const LpCertificate& certificate, const Table& table,
           const ProofOptions& options, Incumbent* incumbent);

 private:
  struct State {
    std::int64_t held = 0;
    std::int64_t time_ns = 0;
    std::int64_t promise_ns = 0;  // no completion takes less
    std::uint32_t parent = 0;     // in the list of the layer before
    std::uint8_t mode = 0;
  };

  void expand(const Candidates& candidates, const LpCertificate& certificate, std::size_t layer);
  void keep_best_of_equals();
  void judge(const Table& table, std::size_t behind);
  void drop_least_promising(std::size_t most);
  void take_best(Incumbent* incumbent) const;

  std::int64_t budget_bytes_ = 0;
  std::int64_t limit_ns_ = 0;              // states that promise this or more are dropped
  std::int64_t dropped_ns_ = 0;            // the least that a dropped state promised
  std::vector<std::vector<State>> lists_;  // [i]: before layer i; held ascending, time descending
  std::vector<State> next_;
  std::vector<std::int64_t> promises_;
};

}  // namespace pudica::planner
