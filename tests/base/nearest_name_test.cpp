#include "base/nearest_name.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
}

// Every pair of words of up to three letters from an alphabet of two: 15 words.
TEST(EditDistance, IsAMetric) {
  std::vector<std::string> words{""};
  for (std::size_t i = 0; words[i].size() < 3; ++i) {
    for (const char letter : {'a', 'b'}) words.push_back(words[i] + letter);
  }
  ASSERT_EQ(words.size(), 15U);
  for (const std::string& x : words) {
    for (const std::string& y : words) {
      EXPECT_EQ(edit_distance(x, y) == 0, x == y) << x << ' ' << y;
      EXPECT_EQ(edit_distance(x, y), edit_distance(y, x)) << x << ' ' << y;
      for (const std::string& z : words) {
        EXPECT_LE(edit_distance(x, z), edit_distance(x, y) + edit_distance(y, z))
            << x << ' ' << y << ' ' << z;
      }
    }
  }
}

TEST(DidYouMean, NamesTheNearest) {
  const std::array<std::string, 3> known{"mimose", "static", "sqrt"};
  EXPECT_EQ(did_you_mean("mimos", known), "; did you mean 'mimose'?");
  EXPECT_EQ(did_you_mean("statik", known), "; did you mean 'static'?");
}

TEST(DidYouMean, TakesTheFirstOfEquals) {
  const std::array<std::string, 2> known{"cat", "car"};
  EXPECT_EQ(did_you_mean("cab", known), "; did you mean 'cat'?");
}

TEST(DidYouMean, IsEmptyWhereMoreThanHalfDiffers) {
  const std::array<std::string, 1> known{"abcd"};
  EXPECT_EQ(did_you_mean("abxy", known), "; did you mean 'abcd'?");
  EXPECT_EQ(did_you_mean("axyz", known), "");
  EXPECT_EQ(did_you_mean("abcd", {}), "");
}

TEST(JoinedNames, PutsCommasBetween) {
  EXPECT_EQ(joined_names({}), "");
  EXPECT_EQ(joined_names(std::array<std::string, 1>{"a"}), "a");
  EXPECT_EQ(joined_names(std::array<std::string, 3>{"a", "b", "c"}), "a, b, c");
}

}  // namespace
}  // namespace pudica
