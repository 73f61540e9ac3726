// The policies, one maker each. All implement include/pudica/policy.h.
//
// Every maker's policy numbers its own plans from 1 on; a plan keeps its number and its content for
// as long as the policy lives. Fixed policies publish one plan for all shapes (`Plan::shape` is
// then the shape of the step that it was first made for).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policy/policy_spec.h"
#include "pudica/bytes.h"
#include "pudica/peak_model.h"
#include "pudica/planner.h"
#include "pudica/policy.h"
#include "pudica/shape_key.h"

namespace pudica {

// Keeps everything, without hooks: training as it is without us.
std::unique_ptr<Policy> make_none_policy();

// Recomputes every layer.
std::unique_ptr<Policy> make_full_policy();

// Recomputes layers 0, n, 2n, ...; every layer while their number is unknown. Requires: n >= 1.
std::unique_ptr<Policy> make_every_n_policy(std::int64_t n);

// Chen et al. (arXiv 1604.06174): with L layers, segments of floor(sqrt(L)) consecutive layers,
// each recomputed as one from its first layer's input. Every layer alone while L is unknown.
std::unique_ptr<Policy> make_sqrt_policy();

// Keeps everything revocably and learns nothing: memory pressure alone decides what is recomputed.
std::unique_ptr<Policy> make_reactive_policy();

// Keeps everything on tapes and evicts single tensors by a rule when memory is short: dynamic
// tensor rematerialisation (DTR, arXiv 2006.09616), without prediction or plan.
std::unique_ptr<Policy> make_dtr_policy(const Eviction& eviction);

// What PyTorch's documentation of selective checkpointing saves: results of matrix products (and of
// convolutions, which are some) and of attention.
const std::vector<std::string>& products_and_attention();

// Recomputes every layer, but for what these operators made (names as Policy::keep_operators has
// them): PyTorch's selective activation checkpointing. Whatever the shape and the budget.
std::unique_ptr<Policy> make_sac_policy(std::vector<std::string> operators);

struct StaticPolicyOptions {
  ShapeKey longest_shape;
  StepCosts costs;  // measured at longest_shape; every layer has 1 to 255 modes
  // Live bytes when a step begins once the optimizer's state exists. The plan is made at the first
  // step, where that state is still missing, for the larger of this and that step's own base.
  Bytes base_bytes{0};
  PlannerOptions planner;
};

// The best plan for the longest shape, made at the first step and frozen: what Mimose's paper runs
// as "Sublinear". Not revocable. A model with another number of layers: every layer recomputed.
std::unique_ptr<Policy> make_static_policy(StaticPolicyOptions options);

struct OraclePolicyOptions {
  std::map<ShapeKey, StepCosts> costs;  // measured beforehand; every layer has 1 to 255 modes
  PlannerOptions planner;

  // Some layer may run a selective mode.
  [[nodiscard]] bool has_selective() const;
};

// Perfect knowledge: the best plan for each shape from its own measured costs, over all modes that
// these have, with no margin, and without hooks once it has held. A shape without costs, or a model
// with another number of layers: every layer recomputed.
std::unique_ptr<Policy> make_oracle_policy(OraclePolicyOptions options);

struct MimosePolicyOptions {
  MimoseRule rule = MimoseRule::kPaper;
  double buffer_fraction = 0;      // of the budget, held back
  std::int64_t warmup_steps = 10;  // >= 2
};

// Mimose (IPDPS 2023, DOI 10.1109/IPDPS54959.2023.00025). Warm-up with every layer recomputed and
// measured; then one quadratic a layer and one for the whole model in the input's length, never
// fitted again; one plan for each length rounded up to 5, kept for good. Plans are not revocable.
std::unique_ptr<Policy> make_mimose_policy(const MimosePolicyOptions& options);

}  // namespace pudica
