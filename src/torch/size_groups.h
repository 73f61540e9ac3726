// SizeGroups: the layers of one class that run over inputs of different sizes in one step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pudica::hooks {

// What a layer saves follows its own input, and is learned by the batch's shape: layers of one
// kind that read inputs of different sizes in the same step (the levels of a pyramid, two towers,
// a query and its passages) are to be learned apart. A layer's group goes by which call of its
// class it is: calls are of one group until a step runs them over different sizes, and never again
// from then on, so that batches at which two sizes happen to be equal run the same layers. Where
// groups would not settle (experts whose inputs follow the data) there is one. Not thread-safe.
class SizeGroups {
 public:
  static constexpr std::size_t kMostGroups = 8;

  // The group of the next call in step `step`, whose inputs have these sizes; below kMostGroups.
  std::size_t group_of(std::uint64_t step, const std::vector<std::int64_t>& sizes) {
    if (step != step_) begin(step);
    const std::size_t call = next_call_++;
    if (scattered_) return 0;
    if (call >= groups_.size()) groups_.resize(call + 1, kNone);
    std::size_t& group = groups_[call];
    if (group == kNone) group = call == 0 ? 0 : groups_[call - 1];
    if (fits(group, sizes)) return group;
    group = other_group(sizes);
    if (++moves_ <= kMostMoves && group < kMostGroups) return group;
    scattered_ = true;
    return 0;
  }

 private:
  using Sizes = std::vector<std::int64_t>;
  static constexpr std::size_t kNone = ~std::size_t{0};
  static constexpr int kMostMoves = 64;

  void begin(std::uint64_t step) {
    step_ = step;
    next_call_ = 0;
    for (Sizes& sizes : of_group_) sizes.clear();
  }

  // Takes the sizes as the group's, where it has none in this step.
  bool fits(std::size_t group, const Sizes& sizes) {
    if (group >= of_group_.size()) of_group_.resize(group + 1);
    if (of_group_[group].empty()) of_group_[group] = sizes;
    return of_group_[group] == sizes;
  }

  // One that has these sizes in this step, else a new one.
  std::size_t other_group(const Sizes& sizes) {
    const auto found = std::ranges::find(of_group_, sizes);
    const auto group = static_cast<std::size_t>(found - of_group_.begin());
    if (found == of_group_.end()) of_group_.push_back(sizes);
    return group;
  }

  std::vector<std::size_t> groups_;  // by call of the step
  std::vector<Sizes> of_group_;      // in this step; empty: none yet
  std::uint64_t step_ = 0;
  std::size_t next_call_ = 0;
  int moves_ = 0;
  bool scattered_ = false;
};

}  // namespace pudica::hooks
