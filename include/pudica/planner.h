// Planner: the least-time choice of one mode per layer whose peak fits the bytes available.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pudica/result.h"

namespace pudica {

// One mode of one layer in the chain recursion R_i = max(W_i(m), s_i(m) + R_{i+1})
// (docs: the peak model). Bytes are exact; they may be any size below 2^62.
struct ChainMode {
  std::int64_t kept_bytes = 0;  // s: live from this layer's forward to its backward
  std::int64_t peak_bytes = 0;  // W: the most this layer needs above what earlier layers hold
  std::int64_t time_ns = 0;     // extra time over the cheapest way, >= 0
};

// Consecutive layers recomputed as one: only what the first of them reads is held.
// R_i = max(W, s + R_{i+length}).
struct ChainJoint {
  std::size_t length = 2;  // layers, >= 2
  ChainMode as_one;        // of all of them together
};

// The planning problem of one step at one shape.
struct Chain {
  std::vector<std::vector<ChainMode>> layers;  // in execution order, each with >= 1 mode
  std::int64_t tail_bytes = 0;                 // W_loss: above everything kept
  // joints[i]: joint segments that begin with layer i, of different lengths. Empty: none. They
  // reach below the floor of the layers one by one and are planned only there.
  std::vector<std::vector<ChainJoint>> joints;
  std::vector<std::uint8_t> joint_choice;  // [i]: the mode of layer i that a joint stands for
  // Of the step with every layer in its fastest mode: what a gap is small against. 0: unknown, then
  // three times the slowest choice's extra time.
  std::int64_t step_ns = 0;
};

// A choice of modes with its exact peak and time.
struct ChainPlan {
  std::vector<std::uint8_t> choice;  // index into Chain::layers[i]
  // 1: this layer is one with the layer before it. Empty: no layer is.
  std::vector<std::uint8_t> joined;
  std::int64_t peak_bytes = 0;      // exact R_1 of the choice
  std::int64_t time_ns = 0;         // exact sum
  std::int64_t lower_bound_ns = 0;  // certificate: no plan that fits is faster than this
};

// One point of the frontier: the fastest known plan for budgets from peak_bytes on.
struct FrontierPoint {
  std::int64_t peak_bytes = 0;
  std::int64_t time_ns = 0;
};

struct PlannerOptions {
  std::int32_t first_cells = 512;    // table of the first stage
  std::int32_t second_cells = 1024;  // table of the second stage
  std::int32_t frontier_cells = 2048;
  // Where the certified gap is above this share of the step's time, branch and bound looks for a
  // better plan or a better bound, and keeps about so many states; 0: never.
  double good_enough_gap = 5e-4;
  std::int32_t proof_states = 2048;  // at most 2^24
};

// The least R_1 that any plan reaches, joint segments included, and the plan that reaches it.
ChainPlan floor_plan(const Chain& chain);

// Exact peak and time of a choice. Requires: choice.size() == layers.size(), entries in range;
// `joined` is empty or as long, and names joints of the chain.
ChainPlan evaluate(const Chain& chain, std::span<const std::uint8_t> choice,
                   std::span<const std::uint8_t> joined = {});

// Plans on one chain at a time; reuses its buffers. Not thread-safe: one owner thread.
class Planner {
 public:
  virtual ~Planner() = default;

  // The best plan with R_1 <= available_bytes; with joint segments only where nothing fits without
  // them. `warm`: a choice known from a similar shape, tried first (may be empty; ignored where it
  // does not fit). Errors: kOverBudget when even the floor does not fit, with floor and shortage in
  // the message; kInvalidArgument for an empty layer.
  virtual Result<ChainPlan> solve(const Chain& chain, std::int64_t available_bytes,
                                  std::span<const std::uint8_t> warm) = 0;

  // The whole frontier, peak ascending and time strictly descending; one pass for every budget.
  virtual Result<std::vector<FrontierPoint>> frontier(const Chain& chain) = 0;
};

std::unique_ptr<Planner> make_planner(const PlannerOptions& options);

}  // namespace pudica
