// What no polynomial says, bounded by the shapes that were seen about the one asked for.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "pudica/predictor.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 20261129;
const SegmentKey kHead{SegmentKind::kHead, 0, Mode::keep(), 0};

// A loss in chunks of 64 tokens over 6,000 words: as large as its largest chunk, and a little for
// each. With a log, that of so many chunks.
class ChunkedLoss : public ::testing::TestWithParam<bool> {
 protected:
  static SegmentSample at(const ShapeKey& shape) {
    SegmentSample sample;
    const auto add = [&sample](std::int64_t bytes) {
      if (GetParam()) sample.deltas.push_back(bytes);
      sample.net_bytes += bytes;
      sample.peak_bytes = std::max(sample.peak_bytes, sample.net_bytes);
    };
    const std::int64_t tokens = shape[0] * shape[1];
    add(768004 + 136 * tokens);
    for (std::int64_t first = 0; first < tokens; first += 64) {
      add(std::min<std::int64_t>(64, tokens - first) * 72328);
      add(-std::min<std::int64_t>(64, tokens - first) * 72328);
      add(12288);
    }
    return sample;
  }

  ShapeKey draw(std::int64_t most_rows) {
    const auto from = [this](std::int64_t least, std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
    };
    return {from(most_rows > 1 ? 1 : 4, most_rows > 1 ? most_rows : 4), from(8, 96)};
  }

  // A predictor that has seen so many batches.
  std::unique_ptr<Predictor> taught(int batches, std::int64_t most_rows) {
    auto predictor = make_online_predictor({});
    for (int i = 0; i < batches; ++i) {
      const ShapeKey shape = draw(most_rows);
      predictor->observe(kHead, shape, at(shape));
    }
    return predictor;
  }

  std::mt19937_64 random_{kSeed};
};

INSTANTIATE_TEST_SUITE_P(LogsKept, ChunkedLoss, ::testing::Bool());

TEST_P(ChunkedLoss, IsBoundedByTheNextLargerBatch) {
  const auto predictor = taught(24, 1);
  int near = 0;
  for (std::int64_t length = 24; length <= 80; ++length) {
    const SegmentSample truth = at({4, length});
    const auto estimate = predictor->predict(kHead, {4, length});
    EXPECT_GE(estimate->peak_upper_bytes, truth.peak_bytes) << length;
    EXPECT_LE(estimate->peak_upper_bytes, truth.peak_bytes + truth.peak_bytes / 20) << length;
    // What a fit over all leaves open by no more is settled.
    EXPECT_GE(estimate->net_upper_bytes + 1024, truth.net_bytes) << length;
    const std::int64_t off = std::abs(estimate->peak_bytes - truth.peak_bytes);
    near += off <= truth.peak_bytes / 200 ? 1 : 0;
  }
  EXPECT_GT(near, 50);
}

// Of rows and lengths: any batch that is nowhere smaller bounds it.
TEST_P(ChunkedLoss, IsBoundedInTwoDimensions) {
  const auto predictor = taught(60, 6);
  int near = 0;
  int asked = 0;
  for (; asked < 300; ++asked) {
    const ShapeKey shape = draw(6);
    const SegmentSample truth = at(shape);
    const auto estimate = predictor->predict(kHead, shape);
    EXPECT_GE(estimate->peak_upper_bytes, truth.peak_bytes) << shape[0] << " x " << shape[1];
    near += estimate->peak_upper_bytes <= truth.peak_bytes + truth.peak_bytes / 10 ? 1 : 0;
  }
  EXPECT_GT(near, asked * 2 / 3) << "of " << asked;
}

// What falls and rises again takes no more between two shapes than at the larger of them.
TEST(Neighbours, BoundTheLargestOfSums) {
  const auto peak = [](std::int64_t length) {
    return std::max(400'000 - 3000 * length, 90'000 + 7 * length * length);
  };
  const auto predictor = make_online_predictor({});
  for (const std::int64_t length : {20, 130, 45, 180, 64, 200, 92, 110, 150, 36}) {
    predictor->observe(kHead, {4, length}, {{}, 1000, peak(length), 0});
  }
  for (std::int64_t length = 21; length < 200; ++length) {
    const auto estimate = predictor->predict(kHead, {4, length});
    EXPECT_GE(estimate->peak_upper_bytes, peak(length)) << length;
  }
}

// Padded copies at one length of eight, or at seven of eight: the shapes beside one may say nothing
// of them. What any took beyond its own is added, and what is told is not settled.
TEST(Neighbours, AreNoCertainty) {
  for (const std::int64_t odd : {1, 7}) {
    const auto peak = [](std::int64_t length) {
      return 30'000 * std::min<std::int64_t>(length, 200) + (length % 8 == 0 ? 0 : 3000 * length);
    };
    const auto predictor = make_online_predictor({});
    std::mt19937_64 random(kSeed);
    const auto from = [&random](std::int64_t least, std::int64_t most) {
      return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    std::set<std::int64_t> seen;
    while (seen.size() < 24) {
      const std::int64_t length = 8 * from(5, 60) + (from(0, 7) < odd ? 3 : 0);
      if (!seen.insert(length).second) continue;
      predictor->observe(kHead, {4, length}, {{}, 1000, peak(length), 0});
    }
    for (std::int64_t length = *seen.begin(); length < *seen.rbegin(); ++length) {
      if (seen.contains(length)) continue;
      const auto estimate = predictor->predict(kHead, {4, length});
      EXPECT_GE(estimate->peak_upper_bytes, peak(length)) << length << ", odd " << odd;
      EXPECT_FALSE(estimate->identified) << length;
    }
  }
}

}  // namespace
}  // namespace pudica
