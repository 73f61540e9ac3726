#include "torch/output_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

const at::Device kCpu{at::kCPU};
constexpr std::int64_t kBytes = 16;  // of at::empty({4})

TEST(OutputWatch, TellsWhatGoesWithItsOwnBackward) {
  OutputWatch watch;
  at::Tensor early = at::empty({4});
  at::Tensor late = at::empty({8});
  watch.called(0, {}, kCpu);
  watch.made(0, {early, late}, kCpu);
  watch.called(1, {early, late}, kCpu);
  watch.made(1, {at::empty({4})}, kCpu);
  watch.begins(1);
  early = at::Tensor();
  watch.begins(0);
  late = at::Tensor();
  EXPECT_EQ(watch.held_bytes(0), 0) << "its backward is under way";
  watch.ends();
  EXPECT_EQ(watch.held_bytes(0), 2 * kBytes) << "the other was freed before";
  EXPECT_EQ(watch.held_bytes(1), 0);
  EXPECT_EQ(watch.held_bytes(2), 0) << "never called";
}

TEST(OutputWatch, TellsWhereWhatWentEarlyWas) {
  OutputWatch watch;
  at::Tensor early = at::empty({4});
  const at::Tensor late = at::empty({8});
  const void* const place = early.storage().data();
  watch.called(0, {}, kCpu);
  watch.made(0, {early, late}, kCpu);
  EXPECT_EQ(watch.places(0), (std::vector<const void*>{place, late.storage().data()}));
  watch.called(1, {early, late}, kCpu);
  early = at::Tensor();
  watch.begins(0);
  EXPECT_EQ(watch.gone_early(0), std::vector<const void*>{place});
  EXPECT_TRUE(watch.gone_early(1).empty());
}

TEST(OutputWatch, TellsWhatTheNextLayerDidNotRead) {
  OutputWatch watch;
  const at::Tensor read = at::empty({4});
  const at::Tensor unread = at::empty({8});
  const at::Tensor handed_on = at::empty({8});
  watch.called(0, {handed_on}, kCpu);
  watch.made(0, {read, unread, handed_on}, kCpu);
  EXPECT_TRUE(watch.unread(0).empty()) << "the next one may read it";
  watch.called(1, {read}, kCpu);
  EXPECT_EQ(watch.unread(0), std::vector<const void*>{unread.storage().data()});
  const at::Tensor last = at::empty({8});
  watch.made(1, {at::empty({4}), last, read}, kCpu);
  EXPECT_EQ(watch.unread(1), std::vector<const void*>{last.storage().data()}) << "as of the other";
  watch.called(2, {last}, kCpu);
  EXPECT_EQ(watch.unread(1).size(), 1U) << "the first, and not the one that is read";
  watch.called(3, {unread}, kCpu);
  EXPECT_TRUE(watch.unread(0).empty()) << "read later";
  watch.clear();
  EXPECT_TRUE(watch.unread(0).empty());
  watch.called(0, {}, kCpu);
  watch.made(0, {read, unread}, kCpu);
  watch.called(1, {at::empty({4})}, kCpu);
  EXPECT_TRUE(watch.unread(0).empty()) << "something in between read it";
  watch.clear();
  const at::Tensor left = at::empty({4});  // in a cache
  watch.called(0, {}, kCpu);
  watch.made(0, {read}, kCpu);
  const auto made = [&](const void* place) { return place == left.storage().data(); };
  EXPECT_EQ(watch.called(1, {at::empty({4}), left}, kCpu, made).size(), 1U);
  EXPECT_TRUE(watch.unread(0).empty()) << "so it did, though the next one reads what was left";
}

TEST(OutputWatch, WhatALayerLeavesForTheNextIsAnOutputToo) {
  OutputWatch watch;
  at::Tensor key = at::empty({4});
  at::Tensor value = at::empty({4});
  const at::Tensor mask = at::empty({4});
  const at::Tensor x = at::empty({4});
  const at::Tensor y = at::empty({4});
  const auto made = [&](const void* place) {
    return place == key.storage().data() || place == value.storage().data();
  };
  watch.called(0, {x}, kCpu, made);
  watch.made(0, {y}, kCpu);
  const std::vector<const void*> places{key.storage().data(), value.storage().data()};
  EXPECT_EQ(watch.called(1, {y, mask, key, value}, kCpu, made), places);
  EXPECT_TRUE(watch.called(2, {y, mask, key, value}, kCpu, made).empty()) << "known by then";
  EXPECT_TRUE(watch.places(1).empty());
  key = at::Tensor();
  watch.begins(0);
  EXPECT_EQ(watch.gone_early(0), std::vector<const void*>{places.front()});
  value = at::Tensor();
  watch.ends();
  EXPECT_EQ(watch.held_bytes(0), kBytes);
}

TEST(OutputWatch, TellsWhatNeighboursBothRead) {
  OutputWatch watch;
  const at::Tensor mask = at::empty({4});
  const at::Tensor own = at::empty({4});
  const at::Tensor x = at::empty({4});
  const at::Tensor y = at::empty({4});
  watch.called(0, {x, mask, own}, kCpu);
  watch.made(0, {y}, kCpu);
  EXPECT_TRUE(watch.shared().empty());
  watch.called(1, {y, mask.view({2, 2})}, kCpu);
  watch.called(2, {y, mask}, kCpu);
  EXPECT_EQ(watch.shared(), std::vector<const void*>{mask.storage().data()}) << "a layer made y";
  watch.clear();
  EXPECT_TRUE(watch.shared().empty());
}

TEST(OutputWatch, WhatOutlivesItsBackwardIsSomebodyElses) {
  OutputWatch watch;
  const at::Tensor output = at::empty({4});
  watch.called(0, {}, kCpu);
  watch.made(0, {output}, kCpu);
  watch.begins(0);
  watch.ends();
  EXPECT_EQ(watch.held_bytes(0), 0);
}

TEST(OutputWatch, CountsOnlyWhatTheLayerMadeAndTheNextOneReads) {
  OutputWatch watch;
  at::Tensor given = at::empty({4});
  at::Tensor unread = at::empty({4});
  at::Tensor handed_on = at::empty({4});
  at::Tensor elsewhere = at::empty({4}, at::kMeta);
  at::Tensor read = at::empty({4});
  watch.called(0, {given}, kCpu);
  watch.made(0, {given, unread, handed_on, read, read.narrow(0, 0, 2), elsewhere, {}}, kCpu);
  watch.called(1, {given, handed_on, read, elsewhere}, kCpu);
  watch.made(1, {handed_on}, kCpu);
  watch.begins(0);
  given = unread = handed_on = elsewhere = read = at::Tensor();
  watch.ends();
  EXPECT_EQ(watch.held_bytes(0), kBytes) << "a storage counts once";
}

// A chain's first layer reads what no layer made, and somebody else may hold that.
TEST(OutputWatch, TellsWhatTheFirstLayerReadAndLeaves) {
  OutputWatch watch;
  at::Tensor mask = at::empty({4});
  at::Tensor first = at::empty({4});
  at::Tensor second = at::empty({8});
  watch.called(0, {first, mask}, kCpu);
  watch.made(0, {second}, kCpu);
  watch.called(1, {second, mask}, kCpu);
  watch.made(1, {at::empty({4})}, kCpu);
  watch.called(2, {at::empty({4}), mask}, kCpu);
  for (const int layer : {2, 1, 0}) watch.begins(layer);
  watch.ends();
  EXPECT_EQ(watch.left_bytes(0), kBytes) << "the mask is no part of the chain";
  EXPECT_EQ(watch.left_bytes(1), 0) << "a layer made it";
  watch.begins(0);
  first = at::Tensor();
  watch.ends();
  EXPECT_EQ(watch.left_bytes(0), kBytes) << "gone by then";
}

// Of the last layer what the one before it was not asked for, where both make the like: siblings
// are told alike.
TEST(OutputWatch, WhatNobodyReadsOfTheLastLayerIsNotItsOutput) {
  for (const bool alike : {true, false}) {
    OutputWatch watch;
    at::Tensor x = at::empty({4});
    at::Tensor weights = at::empty({4});
    at::Tensor y = at::empty({4});
    at::Tensor last_weights = at::empty({alike ? 4 : 12});
    watch.called(0, {}, kCpu);
    watch.made(0, {x, weights}, kCpu);
    watch.called(1, {x}, kCpu);
    watch.made(1, {y, last_weights}, kCpu);
    watch.begins(1);
    y = last_weights = at::Tensor();
    watch.begins(0);
    x = weights = at::Tensor();
    watch.ends();
    EXPECT_EQ(watch.held_bytes(1), alike ? kBytes : 4 * kBytes);
    EXPECT_EQ(watch.held_bytes(0), kBytes);
    EXPECT_TRUE(watch.gone_early(1).empty());
  }
}

TEST(OutputWatch, TheLastLayersAreReadByNoLayer) {
  OutputWatch watch;
  at::Tensor output = at::empty({4});
  watch.called(0, {}, kCpu);
  watch.made(0, {output}, kCpu);
  watch.begins(0);
  output = at::Tensor();
  watch.ends();
  EXPECT_EQ(watch.held_bytes(0), kBytes);
  watch.clear();
  EXPECT_EQ(watch.held_bytes(0), 0);
}

}  // namespace
}  // namespace pudica::hooks
