// Shapes as users write them.
#include <random>

#include "daemon/model_support.h"
#include "inspect/learned_shape.h"

namespace pudica::daemon::testing {
namespace {

using namespace inspect;

const DimensionNames& names() {
  static const DimensionNames both{"batch", "source"};
  return both;
}

TEST(LearnedShape, ReadsNumbersInTheKeysOrderAndNamesInAny) {
  for (const char* text : {"12x384", "batch=12,source=384", "source=384,batch=12",
                           " batch = 12 , source = 384 ", " 12 x 384 "}) {
    const auto shape = parse_shape(text, names());
    ASSERT_TRUE(shape) << text << ": " << shape.error().message;
    EXPECT_EQ(shape->to_named_string(), "batch=12,source=384") << text;
  }
  EXPECT_EQ(parse_shape("7", {"length"})->to_named_string(), "length=7");
}

TEST(LearnedShape, ErrorsNameWhatWasSeenAndTheDimensionsExpected) {
  const auto message = [](const char* text) {
    const auto shape = parse_shape(text, names());
    EXPECT_FALSE(shape) << text;
    if (shape) return std::string();
    EXPECT_EQ(shape.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(shape.error().message.find("expected batch x source, such as 12x384 or "
                                         "batch=12,source=384"),
              std::string::npos)
        << shape.error().message;
    return shape.error().message;
  };
  EXPECT_NE(message("12x384x5").find("3 sizes instead of 2"), std::string::npos);
  EXPECT_NE(message("12").find("1 size instead of 2"), std::string::npos);
  EXPECT_NE(message("12x0").find("source is '0'"), std::string::npos);
  EXPECT_NE(message("-3x5").find("batch is '-3'"), std::string::npos);
  EXPECT_NE(message("ax5").find("batch is 'a'"), std::string::npos);
  EXPECT_NE(message("batch=12").find("'source' is missing"), std::string::npos);
  EXPECT_NE(message("batch=12,length=3").find("no dimension 'length'"), std::string::npos);
  EXPECT_NE(message("batch=1,batch=2").find("'batch' is given twice"), std::string::npos);
  EXPECT_NE(message("batch=1,384").find("'384' has no name"), std::string::npos);
  EXPECT_NE(message("1x99999999999999999999").find("not a size of 1 to"), std::string::npos);
  EXPECT_NE(
      message("999999999999x999999999999").find("at most 17592186044416 elements in all are read"),
      std::string::npos);
  EXPECT_FALSE(message("").empty());
  EXPECT_LT(message(std::string(100000, 'x').c_str()).size(), 400U);
}

TEST(LearnedShape, WithoutAnyLearnedStepNothingCanBeRead) {
  const auto shape = parse_shape("12x384", {});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, ErrorCode::kUnavailable);
}

TEST(LearnedShape, RandomTextIsAShapeOrAnError) {
  std::mt19937_64 random(1);
  constexpr char kAlphabet[] = "0123456789xx,==batchsource \0\xff-+e.";
  const std::string alphabet(kAlphabet, sizeof(kAlphabet) - 1);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::uint64_t k = random() % 12; k > 0; --k) text += alphabet[random() % alphabet.size()];
    const auto shape = parse_shape(text, names());
    if (!shape) continue;
    ++read;
    EXPECT_EQ(shape->size(), 2U);
    EXPECT_EQ(*parse_shape(shape->to_string(), names()), *shape);
    EXPECT_EQ(*parse_shape(shape->to_named_string(), names()), *shape);
  }
  EXPECT_GT(read, 10);
}

TEST(LearnedShape, DimensionsAreThoseOfTheLearnedShapes) {
  Process process;
  EXPECT_TRUE(dimension_names(process.controller().snapshot().learned).empty());
  process.step(ShapeKey({"rows", "tokens"}, std::vector<std::int64_t>{4, 64}));
  EXPECT_EQ(dimension_names(process.controller().snapshot().learned),
            (DimensionNames{"rows", "tokens"}));
}

}  // namespace
}  // namespace pudica::daemon::testing
