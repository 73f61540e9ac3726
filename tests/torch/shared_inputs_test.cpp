// Layers that read one mask: the last of them in the backward lets it go, and is learned as its
// siblings are all the same.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

constexpr std::int64_t kLength = 64;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kMaskBytes = 4 * kLength * kLength;

class SharedInputsTest : public SessionTest {
 protected:
  SharedInputsTest() {
    policy_->record = true;
    weight_ = at::randn({kWidth, kWidth}).set_requires_grad(true);
  }

  // A step of three layers. `with_table`: a gradient flows to what is in front of them.
  std::vector<SegmentObservation> step(const Plan& plan, bool with_table) {
    policy_->plan = plan;
    const auto handle = attach_with(1 << 30);
    handle->begin_step(ShapeKey{1, kLength});
    const at::Tensor table = at::randn({kWidth}).set_requires_grad(with_table);
    at::Tensor loss;
    {
      at::Tensor x = table.expand({kLength, kWidth}) * 1.0;
      const at::Tensor mask = at::rand({kLength, kLength}) * 2.0;
      for (std::int64_t i = 0; i < 3; ++i) {
        const auto run = [this](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{at::matmul(in[1], at::matmul(in[0], weight_))};
        };
        x = handle->layer(i, run, {x, mask}, LayerOptions{.layer_class = "masked"})[0];
      }
      loss = x.sum();
    }
    torch::autograd::backward({loss});
    loss = at::Tensor();
    handle->end_step();
    weight_.mutable_grad() = at::Tensor();
    return policy_->outcomes.back().segments;
  }

  static const SegmentObservation* find(const std::vector<SegmentObservation>& all,
                                        SegmentKind kind, std::int32_t layer) {
    const auto found = std::ranges::find_if(all, [&](const SegmentObservation& item) {
      return item.key.kind == kind && (layer < 0 || item.layer == layer);
    });
    return found == all.end() ? nullptr : &*found;
  }

  at::Tensor weight_;
};

TEST_F(SharedInputsTest, TheLastReaderIsLearnedLikeItsSiblings) {
  for (const Mode mode : {Mode::keep(), Mode::full()}) {
    for (const bool with_table : {true, false}) {
      const auto segments = step(plan_of({mode, mode, mode}), with_table);
      const SegmentObservation* const first = find(segments, SegmentKind::kBackward, 0);
      const SegmentObservation* const second = find(segments, SegmentKind::kBackward, 1);
      ASSERT_TRUE(first != nullptr && second != nullptr) << to_string(mode);
      if (with_table) {  // else it makes no gradient of its input
        EXPECT_EQ(first->sample.net_bytes, second->sample.net_bytes) << to_string(mode);
        EXPECT_EQ(first->sample.deltas.size(), second->sample.deltas.size()) << to_string(mode);
      }
      EXPECT_GT(first->sample.net_bytes, -kMaskBytes) << to_string(mode);
      const auto* const behind =
          find(segments, with_table ? SegmentKind::kEpilogue : SegmentKind::kOptimizer, -1);
      ASSERT_NE(behind, nullptr);
      EXPECT_LE(behind->sample.net_bytes, -kMaskBytes) << "it goes right behind";
    }
  }
}

// What a layer that tells nothing let go of is missing all the same.
TEST_F(SharedInputsTest, WhatStandsBehindTheLayersDoesNotHangOnWhatTheyTell) {
  const auto told = step(plan_of({Mode::keep(), Mode::keep(), Mode::keep()}), true);
  Plan joined = plan_of({Mode::full(), Mode::full(), Mode::keep()});
  joined.joined = {0, 1, 0};
  const auto silent = step(joined, true);
  EXPECT_EQ(find(silent, SegmentKind::kBackward, 0), nullptr) << "one of a joint segment";
  const SegmentObservation* const before = find(told, SegmentKind::kEpilogue, -1);
  const SegmentObservation* const after = find(silent, SegmentKind::kEpilogue, -1);
  ASSERT_TRUE(before != nullptr && after != nullptr);
  EXPECT_EQ(after->sample.net_bytes, before->sample.net_bytes);
}

}  // namespace
}  // namespace pudica::testing
