// The written state: comes back as it was, and nothing damaged is taken for it.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "predictor/predictor_file.h"
#include "predictor/synthetic.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::SegmentGenerator;

constexpr std::uint64_t kSeed = 31;

// Several segments in all bases, with times and the user's own dimension names.
std::unique_ptr<Predictor> make_taught(std::uint64_t seed, const PredictorOptions& options) {
  SegmentGenerator random(seed, 2);
  auto predictor = make_online_predictor(options);
  const DimensionNames names{"rows", "to ken%s"};
  for (std::uint16_t layer_class = 0; layer_class < 5; ++layer_class) {
    const SegmentKey key{SegmentKind::kBackward, layer_class, Mode::selective(layer_class), 3};
    const auto truth = random.segment(20);
    const std::int64_t shapes = layer_class == 4 ? 1 : random.uniform(2, 50);
    for (std::int64_t i = 0; i < shapes; ++i) {
      const ShapeKey shape(names, random.shape().values());
      SegmentSample sample = truth.at(shape);
      if (layer_class == 1) sample.deltas.clear();
      sample.seconds = 1e-6 * static_cast<double>(shape[0] * shape[1] + random.uniform(0, 100));
      predictor->observe(key, shape, sample);
    }
  }
  return predictor;
}

void expect_equal(const SegmentEstimate& left, const SegmentEstimate& right) {
  EXPECT_EQ(left.net_bytes, right.net_bytes);
  EXPECT_EQ(left.peak_bytes, right.peak_bytes);
  EXPECT_EQ(left.net_upper_bytes, right.net_upper_bytes);
  EXPECT_EQ(left.peak_upper_bytes, right.peak_upper_bytes);
  EXPECT_EQ(left.seconds, right.seconds);
  EXPECT_EQ(left.seconds_sigma, right.seconds_sigma);
  EXPECT_EQ(left.basis, right.basis);
  EXPECT_EQ(left.identified, right.identified);
}

TEST(PredictorState, ComesBackPredictingTheSame) {
  for (const std::int64_t granularity : {1, 512}) {
    for (std::uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const PredictorOptions options{.granularity_bytes = granularity,
                                     .max_samples_per_segment = 24};
      const auto original = make_taught(seed, options);
      const auto copy = make_online_predictor(options);
      ASSERT_TRUE(copy->restore(original->serialize()).has_value());
      EXPECT_EQ(copy->serialize(), original->serialize());
      EXPECT_EQ(copy->segments(), original->segments());
      SegmentGenerator random(seed + 1000, 2);
      for (const SegmentKey& key : original->segments()) {
        EXPECT_EQ(copy->distinct_shapes(key), original->distinct_shapes(key));
        for (int i = 0; i < 20; ++i) {
          const ShapeKey asked = random.shape(64, 1024);
          expect_equal(*copy->predict(key, asked), *original->predict(key, asked));
        }
      }
    }
  }
}

TEST(PredictorState, LearnsOnAsBefore) {
  const auto original = make_taught(kSeed, {});
  const auto copy = make_online_predictor({});
  ASSERT_TRUE(copy->restore(original->serialize()).has_value());
  SegmentGenerator random(kSeed + 1, 2);
  const SegmentKey key = original->segments().front();
  for (int i = 0; i < 100; ++i) {
    const ShapeKey shape = random.shape();
    const SegmentSample sample{{}, 10 * shape[0], 20 * shape[1] + 400, 1e-3};
    original->observe(key, shape, sample);
    copy->observe(key, shape, sample);
    expect_equal(*copy->predict(key, {9, 99}), *original->predict(key, {9, 99}));
  }
}

TEST(PredictorState, DescribesWithTheNamesItWasTaughtWith) {
  const auto copy = make_online_predictor({});
  ASSERT_TRUE(copy->restore(make_taught(kSeed, {})->serialize()).has_value());
  const LearnedQuantity learned = copy->describe().back();
  EXPECT_EQ(learned.monomials, (std::vector<std::string>{"1", "rows*to ken%s", "rows*to ken%s^2"}));
}

TEST(PredictorState, RestoringRaisesTheVersionAndReplacesEverything) {
  const auto predictor = make_taught(kSeed, {});
  const std::uint64_t version = predictor->version();
  ASSERT_TRUE(predictor->restore(make_online_predictor({})->serialize()).has_value());
  EXPECT_GT(predictor->version(), version);
  EXPECT_TRUE(predictor->segments().empty());
}

TEST(PredictorState, RefusesEveryDamagedTextAndKeepsWhatItHad) {
  const std::string text = make_taught(kSeed, {.max_samples_per_segment = 4})->serialize();
  const auto predictor = make_taught(kSeed + 1, {});
  const std::string before = predictor->serialize();
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    if (i % 3 == 0) {
      damaged.resize(random() % text.size());
    } else {
      const auto flip = static_cast<char>(1U << (random() % 8));
      damaged[random() % text.size()] ^= flip;
    }
    const auto result = predictor->restore(damaged);
    ASSERT_FALSE(result.has_value()) << "seed " << kSeed << " round " << i;
    ASSERT_EQ(result.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_EQ(predictor->serialize(), before);
}

// Goal: damage that the checksum does not reveal. Method: damage the body and sign it again; the
// text may then be accepted or not, but whatever is accepted must work.
TEST(PredictorState, SurvivesDamageUnderAValidChecksum) {
  const std::string text = make_taught(kSeed, {.max_samples_per_segment = 4})->serialize();
  const std::string body = text.substr(0, text.rfind("checksum "));
  const std::string alphabet = "0123456789 -.e%=\nsegment";
  std::mt19937_64 random(kSeed);
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = body;
    for (std::uint64_t n = random() % 3; n < 3; ++n) {
      const std::size_t at = random() % damaged.size();
      if (random() % 4 == 0) {
        damaged.erase(at, random() % 20);
      } else {
        damaged[at] = alphabet[random() % alphabet.size()];
      }
    }
    const auto predictor = make_online_predictor({});
    const auto result = predictor->restore(predictor::with_checksum(damaged));
    if (!result) {
      ASSERT_EQ(result.error().code, ErrorCode::kCorrupt);
      continue;
    }
    ++accepted;
    for (const SegmentKey& key : predictor->segments()) {
      const auto estimate = predictor->predict(key, {9, 99});
      if (!estimate) continue;
      ASSERT_GE(estimate->peak_upper_bytes, estimate->peak_bytes);
      predictor->observe(key, {9, 99}, {{5, -5}, 0, 5, 1e-3});
    }
    (void)predictor->describe();
  }
  EXPECT_GT(accepted, 0);
}

// Numbers that no step has: a peak below zero or below what is left, and a log that does not add
// up.
TEST(PredictorState, RefusesBytesThatNoStepHasNeeded) {
  const auto predictor = make_online_predictor({});
  predictor->observe({SegmentKind::kForward, 0, Mode::keep(), 0}, {4, 8}, {{96, -32}, 64, 96, 0});
  const std::string text = predictor->serialize();
  const std::string body = text.substr(0, text.rfind("checksum "));
  const std::string sample = "sample 4 8 64 96 1 2 96 -32\n";
  ASSERT_NE(body.find(sample), std::string::npos) << body;
  for (const char* other :
       {"sample 4 8 -64 -96 1 2 -96 32\n", "sample 4 8 64 32 0 0\n", "sample 4 8 64 -1 0 0\n",
        "sample 4 8 6 9 1 2 96 -32\n", "sample 4 8 64 9000000000000000000 0 0\n"}) {
    std::string forged = body;
    forged.replace(forged.find(sample), sample.size(), other);
    const auto done = make_online_predictor({})->restore(predictor::with_checksum(forged));
    ASSERT_FALSE(done.has_value()) << other;
    EXPECT_NE(done.error().message.find("measured by no step"), std::string::npos)
        << done.error().message;
  }
}

TEST(PredictorState, RefusesAbsurdCountsWithoutReservingThem) {
  for (const char* body :
       {"pudica-predictor 1 9000000000000000000\n", "pudica-predictor 1 -1\n",
        "pudica-predictor 3 0\n", "pudica-predictor 1 1\nsegment 0 0 0 0 0 1 2 =a =b 60000\n",
        "pudica-predictor 1 1\nsegment 0 0 0 0 0 1 2 =a =b 1\nsample 1 2 3 4 1 65000\n", ""}) {
    const auto result =
        make_online_predictor({})->restore(predictor::with_checksum(std::string(body)));
    ASSERT_FALSE(result.has_value()) << body;
    EXPECT_EQ(result.error().code, ErrorCode::kCorrupt);
  }
}

// The version before had no ridges.
TEST(PredictorState, ReadsTheVersionBefore) {
  const auto original = make_taught(kSeed, {});
  std::string text = original->serialize();
  std::string body(text.substr(0, text.rfind("checksum ")));
  const std::string before = "pudica-predictor 1";
  body.replace(0, before.size(), before);
  for (std::size_t at = body.find("\ntime "); at != std::string::npos;
       at = body.find("\ntime ", at + 1)) {
    const std::size_t end = body.find('\n', at + 1);
    const std::size_t last = body.rfind(' ', end);
    body.erase(last, end - last);
  }
  const auto copy = make_online_predictor({});
  const auto restored = copy->restore(predictor::with_checksum(body));
  ASSERT_TRUE(restored.has_value()) << restored.error().message;
  ASSERT_EQ(copy->segments(), original->segments());
  for (const SegmentKey& key : copy->segments()) {
    expect_equal(*copy->predict(key, {9, 99}), *original->predict(key, {9, 99}));
    copy->observe_time(key, {9, 99}, 1e-3);
  }
}

// No learned fit is held back by more than the largest ridge that is ever told.
TEST(PredictorState, RefusesRidgesThatNothingTells) {
  const std::string text = make_taught(kSeed, {})->serialize();
  const std::string body = text.substr(0, text.rfind("checksum "));
  const std::size_t end = body.find('\n', body.find("\ntime ") + 1);
  const std::size_t last = body.rfind(' ', end);
  for (const auto& [ridge, taken] :
       {std::pair{" 10", true}, std::pair{" 1000", false}, std::pair{" -1", false}}) {
    std::string other = body;
    other.replace(last, end - last, ridge);
    const auto restored = make_online_predictor({})->restore(predictor::with_checksum(other));
    EXPECT_EQ(restored.has_value(), taken) << ridge;
  }
}

// A daemon is handed states by its clients, and names of dimensions are kept for ever.
TEST(PredictorState, NamesOfDimensionsDoNotFillTheMemory) {
  const std::string text = make_taught(kSeed, {.max_samples_per_segment = 4})->serialize();
  const std::string body = text.substr(0, text.rfind("checksum "));
  const auto named = [&body](int number) {
    std::string renamed = body;
    for (std::size_t at = 0; (at = renamed.find("=rows", at)) != std::string::npos;) {
      renamed.replace(at, 5, "=garbage" + std::to_string(number));
    }
    return predictor::with_checksum(renamed);
  };
  const auto predictor = make_online_predictor({});
  int accepted = 0;
  for (int i = 0; i < 1500; ++i) accepted += predictor->restore(named(i)).has_value() ? 1 : 0;
  EXPECT_GT(accepted, 500);
  EXPECT_LT(accepted, 1030);
  const auto refused = predictor->restore(named(1500));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("names of dimensions"));
  EXPECT_TRUE(predictor->restore(text).has_value()) << "known already";
}

}  // namespace
}  // namespace pudica
