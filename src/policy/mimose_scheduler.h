// Mimose's two greedy rules: which layers to recompute so that enough bytes are saved.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "policy/policy_spec.h"

namespace pudica {

// A layer that may be recomputed, and the bytes that this is estimated to save.
struct MimoseCandidate {
  std::size_t layer = 0;  // in execution order: earlier layers have smaller numbers
  double saved_bytes = 0;
};

// Layers to recompute, in the order chosen, until their estimates cover `need_bytes` or none is
// left. Nothing for a need of 0 or less. Compute time is not weighed: neither rule does.
//
// kPaper, Algorithm 1: layers sorted by estimate, descending; a bucket takes those above 0.9 of its
// first. While something is needed: of the buckets whose largest estimate exceeds the rest needed,
// the one nearest in size gives its earliest layer; if there is none, the largest bucket does.
//
// kCode, the greedy of the published program (transformers/manager.py): the same buckets but for
// equality (at least 0.9), inside each the last layer first, all in one list. While something is
// needed: the entry nearest to the end of the list that alone covers the rest; if there is none,
// the last entry, which is the earliest layer of the smallest bucket.
std::vector<std::size_t> schedule_mimose(MimoseRule rule,
                                         std::span<const MimoseCandidate> candidates,
                                         double need_bytes);

}  // namespace pudica
