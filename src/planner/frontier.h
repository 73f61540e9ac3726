// The frontier: every budget's plan value from one pass over the layers.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"
#include "planner/scaling.h"
#include "planner/table.h"
#include "pudica/planner.h"

namespace pudica::planner {

// The same recursion as Table's, carrying each cell's exact time along, so that no cell needs to
// be traced: two rows suffice. Keeps its buffers. Not thread-safe.
class FrontierPass {
 public:
  // Peak ascending, time strictly descending; times include candidates.fastest_ns(). Each point
  // is a choice that needs no more than peak_bytes and takes no more than time_ns: exact where
  // the chain's units are bytes and ticks nanoseconds, else rounded up by less than one unit (or
  // tick) a layer. The first point is the exact floor, the last the fastest choice.
  std::vector<FrontierPoint> run(const Candidates& candidates, const ScaledBytes& bytes,
                                 const TimeCells& cells);

 private:
  struct Row {
    std::vector<std::int32_t> bytes;
    std::vector<std::int32_t> ticks;

    void reset(std::int32_t cells);
    TimedRow begin() { return {bytes.data() + kRowBlock, ticks.data() + kRowBlock}; }
  };

  // Ends with the row of layer 0 in next_, its cells up to longest_.
  void sweep(const Candidates& candidates, const ScaledBytes& bytes, const TimeCells& cells);
  void load_modes(const Candidates& candidates, const ScaledBytes& bytes, const TimeCells& cells,
                  std::size_t layer);

  int tick_shift_ = 0;        // a tick is 2^shift ns: the finest that int32 sums hold
  std::int32_t longest_ = 0;  // rounded time of the slowest choice of the layers so far
  Row next_;
  Row out_;
  std::vector<RowMode> modes_;
};

}  // namespace pudica::planner
