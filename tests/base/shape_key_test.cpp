#include "pudica/shape_key.h"

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(ShapeKey, PrintsAndReadsBothForms) {
  const ShapeKey key{12, 384};
  EXPECT_EQ(key.to_string(), "12x384");
  EXPECT_EQ(key.to_named_string(), "batch=12,source=384");
  EXPECT_EQ(*ShapeKey::parse("12x384"), key);
  EXPECT_EQ(*ShapeKey::parse("batch=12,source=384"), key);
  EXPECT_EQ(ShapeKey::parse("rows=3,cols=4")->to_named_string(), "rows=3,cols=4");
}

TEST(ShapeKey, RefusesWhatIsNoShape) {
  for (const char* text : {"", "12x", "0x5", "12x-3", "axb", "batch=", "=3", "1x2x3x4x5x6x7"}) {
    EXPECT_FALSE(ShapeKey::parse(text).has_value()) << text;
  }
}

TEST(ShapeKey, CoversWhatIsNoLargerInAnyDimension) {
  EXPECT_TRUE(ShapeKey({8, 128}).covers(ShapeKey{8, 128}));
  EXPECT_TRUE(ShapeKey({8, 128}).covers(ShapeKey{4, 64}));
  EXPECT_FALSE(ShapeKey({8, 128}).covers(ShapeKey{9, 64}));
  EXPECT_FALSE(ShapeKey({8, 128}).covers(ShapeKey{8}));
}

TEST(ShapeKey, EqualValuesAreEqualAndHashEqually) {
  EXPECT_EQ(ShapeKey({3, 4}).hash(), ShapeKey({3, 4}).hash());
  EXPECT_NE(ShapeKey({3, 4}), ShapeKey({4, 3}));
  EXPECT_LT(ShapeKey({3, 4}), ShapeKey({3, 5}));
}

}  // namespace
}  // namespace pudica
