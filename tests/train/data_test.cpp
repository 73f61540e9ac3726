#include "train/data.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica::train {
namespace {

using testing::HasSubstr;

Dataset text_of(const std::string& content, std::int64_t max_length = 0) {
  auto data = parse_text(content, max_length);
  EXPECT_TRUE(data.has_value());
  return *std::move(data);
}

// Examples of lengths 1..count.
Dataset ramp(int count) {
  std::string csv = "len\n";
  for (int i = 1; i <= count; ++i) csv += std::to_string(i) + "\n";
  return *parse_lengths(csv, {}, 0);
}

std::string lengths_error(const std::string& csv, const std::vector<std::string>& columns = {}) {
  const auto data = parse_lengths(csv, columns, 0);
  EXPECT_FALSE(data.has_value());
  return data ? std::string() : data.error().message;
}

TEST(Random, RepeatsAStreamAndSeparatesStreams) {
  Random first(1);
  Random second(1);
  Random stream(1, 1);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const auto value = first.next();
    EXPECT_EQ(value, second.next());
    seen.insert(value);
    seen.insert(stream.next());
  }
  EXPECT_EQ(seen.size(), 200U);
}

TEST(Random, StaysBelowTheBoundAndReachesAllOfIt) {
  Random random(7);
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < 6000; ++i) ++counts[random.below(6)];
  ASSERT_EQ(counts.size(), 6U);
  EXPECT_EQ(counts.rbegin()->first, 5U);
  for (const auto& [value, count] : counts) EXPECT_NEAR(count, 1000, 150) << value;
}

TEST(ParseText, TakesLinesThatAreNotEmptyAndCutsThem) {
  const auto data = text_of("abc\n\r\n\nlonger line\r\nend", 6);
  ASSERT_EQ(data.examples.size(), 3U);
  EXPECT_EQ(data.dimensions, 1);
  EXPECT_EQ(data.examples[0].lengths[0], 3);
  EXPECT_EQ(data.examples[1].lengths[0], 6);
  EXPECT_EQ(data.text.substr(data.examples[1].text_offset, 6), "longer");
  EXPECT_EQ(data.examples[2].lengths[0], 3);
  EXPECT_EQ(data.longest(0), 6);
}

TEST(ParseText, RefusesATextWithoutLines) {
  EXPECT_FALSE(parse_text("", 0).has_value());
  EXPECT_FALSE(parse_text("\n\r\n", 0).has_value());
}

TEST(ParseLengths, ChoosesColumnsByDefaultAndByName) {
  const auto one = parse_lengths("id,len\n1,30\n2,40\n", {}, 0);
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->dimensions, 1);
  EXPECT_EQ(one->examples[1].lengths[0], 40);
  const auto pair = parse_lengths("src_len,tgt_len\r\n3,4\r\n5,6", {}, 0);
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->dimensions, 2);
  EXPECT_EQ(pair->examples[1].lengths[0], 5);
  EXPECT_EQ(pair->examples[1].lengths[1], 6);
  const auto named = parse_lengths("a, b ,c\n1,2,3\n", {"c", "b"}, 2);
  ASSERT_TRUE(named.has_value()) << named.error().message;
  EXPECT_EQ(named->examples[0].lengths[0], 2) << "cut at 2";
  EXPECT_EQ(named->examples[0].lengths[1], 2);
}

TEST(ParseLengths, ErrorsNameLineAndColumn) {
  EXPECT_THAT(lengths_error("len\n5\nx\n"), HasSubstr("line 3, column len: 'x'"));
  EXPECT_THAT(lengths_error("len\n0\n"), HasSubstr("line 2, column len: '0'"));
  EXPECT_THAT(lengths_error("len\n-4\n"), HasSubstr("'-4'"));
  EXPECT_THAT(lengths_error("len\n3.5\n"), HasSubstr("'3.5'"));
  EXPECT_THAT(lengths_error("len\n99999999999999999999\n"), HasSubstr("line 2"));
  EXPECT_THAT(lengths_error("a,len\n5\n"), HasSubstr("line 2, column len: ''"));
  EXPECT_THAT(lengths_error("a,b\n1,2\n"), HasSubstr("a,b"));
  EXPECT_THAT(lengths_error("a,b\n1,2\n", {"c"}), HasSubstr("no column 'c'"));
  EXPECT_THAT(lengths_error(""), HasSubstr("empty"));
  EXPECT_THAT(lengths_error("len\n"), HasSubstr("no line"));
}

TEST(LoadData, SaysWhichFileItCannotRead) {
  const auto data = load_data({DataKind::kText, "no/such/file", {}}, 0);
  ASSERT_FALSE(data.has_value());
  EXPECT_EQ(data.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(data.error().message, HasSubstr("no/such/file"));
}

TEST(LoadData, ReadsTheTextThatComesWithPudica) {
  const auto data = load_data({DataKind::kText, default_text_path(), {}}, 1024);
  ASSERT_TRUE(data.has_value()) << data.error().message;
  EXPECT_GT(data->examples.size(), 2000U);
  EXPECT_EQ(data->longest(0), 1024);
}

TEST(MakeBatches, PadsToTheLongestAndNamesTheShape) {
  const auto data = *parse_lengths("src_len,tgt_len\n3,9\n5,2\n", {}, 0);
  const auto batches = make_batches(data, {.batch = 2, .steps = 1, .seed = 1});
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].shape.to_named_string(), "batch=2,source=5,target=9");
}

TEST(MakeBatches, CoversEachEpochOnceWithItsShortLastBatch) {
  const auto data = ramp(10);
  const auto batches = make_batches(data, {.batch = 4, .steps = 7, .seed = 3});
  ASSERT_EQ(batches.size(), 7U);
  std::vector<std::vector<std::uint32_t>> epochs(2);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(batches[i].shape[0], i % 3 == 2 ? 2 : 4);
    auto& epoch = epochs[i / 3];
    epoch.insert(epoch.end(), batches[i].members.begin(), batches[i].members.end());
  }
  EXPECT_NE(epochs[0], epochs[1]) << "shuffled anew";
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_THAT(epoch, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
}

TEST(MakeBatches, DependsOnTheSeedAlone) {
  const auto data = ramp(50);
  const auto members = [&data](std::uint64_t seed, std::int64_t steps) {
    std::vector<std::vector<std::uint32_t>> all;
    for (const auto& batch : make_batches(data, {.batch = 8, .steps = steps, .seed = seed})) {
      all.push_back(batch.members);
    }
    return all;
  };
  EXPECT_EQ(members(1, 20), members(1, 20));
  EXPECT_NE(members(1, 20), members(2, 20));
  auto longer = members(1, 30);
  longer.resize(20);
  EXPECT_EQ(longer, members(1, 20)) << "more steps do not change the first ones";
}

TEST(MakeTokens, MasksBytesOfTextAndRemembersThem) {
  const auto data = text_of("The quick brown fox jumps over it\nshort\n");
  const auto batch = make_batches(data, {.batch = 2, .steps = 1, .seed = 1})[0];
  const auto tokens = make_tokens(data, batch, 256, Random(5));
  ASSERT_EQ(tokens.lengths[0], 33);
  ASSERT_EQ(tokens.ids[0].size(), 66U);
  auto restored = tokens.ids[0];
  int masked = 0;
  for (std::size_t i = 0; i < tokens.positions.size(); ++i) {
    if (tokens.labels[i] == TokenBatch::kIgnored) continue;
    EXPECT_EQ(restored[tokens.positions[i]], 255);
    restored[tokens.positions[i]] = tokens.labels[i];
    ++masked;
  }
  EXPECT_EQ(masked, 6) << "15 % of 38 bytes";
  EXPECT_EQ(tokens.positions.size(), 10U) << "15 % of the padded 66: by shape alone";
  for (std::size_t row = 0; row < 2; ++row) {
    const auto& example = data.examples[batch.members[row]];
    EXPECT_EQ(tokens.valid[0][row], example.lengths[0]);
    for (std::int64_t i = 0; i < 33; ++i) {
      const std::int64_t expected =
          i < example.lengths[0] ? static_cast<unsigned char>(data.text[example.text_offset + i])
                                 : 0;
      EXPECT_EQ(restored[row * 33 + i], expected);
    }
  }
}

TEST(MakeTokens, PredictsTheTargetOfTwoLengths) {
  const auto data = *parse_lengths("src_len,tgt_len\n40,7\n30,20\n", {}, 0);
  const auto batch = make_batches(data, {.batch = 2, .steps = 1, .seed = 1})[0];
  const auto tokens = make_tokens(data, batch, 50, Random(1));
  EXPECT_EQ(tokens.lengths[0], 40);
  EXPECT_EQ(tokens.lengths[1], 20);
  EXPECT_EQ(tokens.positions.size(), 6U);
  for (const auto position : tokens.positions) EXPECT_LT(position, 40);
  EXPECT_EQ(std::count(tokens.ids[0].begin(), tokens.ids[0].end(), 49), 0) << "no mask in source";
  for (const auto& side : tokens.ids) {
    for (const auto id : side) EXPECT_TRUE(id >= 0 && id < 50);
  }
}

TEST(MakeTokens, AlwaysMasksAtLeastOneToken) {
  const auto data = text_of("a\n");
  const auto batch = make_batches(data, {.batch = 1, .steps = 1, .seed = 1})[0];
  const auto tokens = make_tokens(data, batch, 256, Random(1));
  ASSERT_EQ(tokens.labels.size(), 1U);
  EXPECT_EQ(tokens.labels[0], 'a');
  EXPECT_EQ(tokens.ids[0][0], 255);
}

}  // namespace
}  // namespace pudica::train
