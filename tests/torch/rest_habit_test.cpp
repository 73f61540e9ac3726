#include "torch/rest_habit.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

class RestHabitTest : public ::testing::Test {
 protected:
  // A step; whether it rested.
  bool step(const ShapeKey& shape, bool held = true, const RestHabit::Classes& classes = {0, 0, 1},
            std::int64_t kind = 0) {
    habit_.reset();
    habit_.begin(kind, shape, /*look=*/false);
    const bool rests = habit_.rests();
    rests ? habit_.rested(held) : habit_.looked(classes, held);
    return rests;
  }

  RestHabit habit_;
  ShapeKey shape_{2, 16};
};

TEST_F(RestHabitTest, WhatWasLookedAtTwiceRests) {
  EXPECT_FALSE(step(shape_));
  EXPECT_FALSE(step(shape_));
  EXPECT_TRUE(step(shape_));
  EXPECT_FALSE(step(ShapeKey{2, 17}));
  EXPECT_FALSE(step(shape_, true, {0, 0, 1}, 1)) << "another kind of call";
}

TEST_F(RestHabitTest, BelowAShapeThatIsKnownOneLookIsEnough) {
  for (int i = 0; i < 2; ++i) step(shape_);
  const ShapeKey smaller{2, 9};
  EXPECT_FALSE(step(smaller));
  EXPECT_TRUE(step(smaller));
  for (const ShapeKey& other : {ShapeKey{3, 9}, ShapeKey{1, 9}, ShapeKey{2, 17}, ShapeKey{2}}) {
    EXPECT_FALSE(step(other)) << other.to_string();
    EXPECT_FALSE(step(other)) << other.to_string();
    EXPECT_TRUE(step(other)) << other.to_string();
  }
  const ShapeKey unlike{2, 8};
  EXPECT_FALSE(step(unlike, true, {0, 1}));
  EXPECT_FALSE(step(unlike, true, {0, 1})) << "other layers";
}

TEST_F(RestHabitTest, WhereLayersCameAndWentOneLookIsNotEnough) {
  for (int i = 0; i < 2; ++i) step(shape_);
  const ShapeKey smaller{2, 9};
  step(smaller);
  habit_.reset();
  habit_.begin(0, smaller, /*look=*/true);
  habit_.looked({0, 1}, true);
  const ShapeKey smallest{2, 8};
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(step(smallest)) << i;
  EXPECT_TRUE(step(smallest));
}

TEST_F(RestHabitTest, AStepThatNeededMoreCountsFromTheBeginning) {
  step(shape_);
  step(shape_, false);
  step(shape_);
  EXPECT_FALSE(step(shape_));
  EXPECT_TRUE(step(shape_));
}

TEST_F(RestHabitTest, OneThatNeededMoreWhileItRestedEndsTheRestOfAll) {
  const ShapeKey other{2, 17};
  for (int i = 0; i < 2; ++i) step(shape_);
  for (int i = 0; i < 2; ++i) step(other);
  EXPECT_TRUE(step(shape_, false));
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(step(other)) << i;
  EXPECT_TRUE(step(other)) << "twice as many looks";
  EXPECT_FALSE(step(shape_));
}

TEST_F(RestHabitTest, OneLikeItInSixteenIsLookedAt) {
  for (int i = 0; i < 2; ++i) step(shape_);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 15; ++i) EXPECT_TRUE(step(shape_)) << i;
    EXPECT_FALSE(step(shape_)) << round;
  }
}

TEST_F(RestHabitTest, WhereLayersComeAndGoAtOneShapeNothingRests) {
  step(shape_);
  step(shape_, true, {0, 1});
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(step(shape_)) << i;
  const ShapeKey small{2, 4};
  for (int i = 0; i < 2; ++i) step(small, true, {0, 2, 2});
  EXPECT_TRUE(step(small, true, {0, 2, 2})) << "of another shape they may be others";
  for (int i = 0; i < 2; ++i) step(shape_, true, {0, 1}, 1);
  EXPECT_TRUE(step(shape_, true, {0, 1}, 1)) << "or of another kind";
}

TEST_F(RestHabitTest, ALookIsNoRestAndCounts) {
  for (int i = 0; i < 3; ++i) {
    habit_.reset();
    habit_.begin(0, shape_, /*look=*/true);
    EXPECT_FALSE(habit_.rests());
    habit_.looked({0, 0, 1}, true);
  }
  EXPECT_TRUE(step(shape_));
}

TEST_F(RestHabitTest, StepsThatNobodyAskedForChangeNothing) {
  for (int i = 0; i < 2; ++i) step(shape_);
  habit_.reset();
  EXPECT_FALSE(habit_.rests());
  habit_.looked({}, false);
  EXPECT_TRUE(step(shape_));
}

TEST_F(RestHabitTest, AnotherModelIsLookedAtAnew) {
  for (int i = 0; i < 2; ++i) step(shape_);
  step(shape_, true, {1});
  habit_.forget();
  EXPECT_FALSE(step(shape_));
  EXPECT_FALSE(step(shape_));
  EXPECT_TRUE(step(shape_));
}

}  // namespace
}  // namespace pudica::hooks
