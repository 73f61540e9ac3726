#include "torch/held_predictions.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

class HeldPredictionsTest : public ::testing::Test {
 protected:
  HeldPredictionsTest() {
    plan_.id = 7;
    plan_.predicted_peak_bytes = Bytes(100'000);
    plan_.revocable = false;
    plan_.revocable_until_held = true;
  }

  void take_plan(std::uint64_t id, const ShapeKey& shape) {
    plan_.id = id;
    shape_ = shape;
  }

  // Whether the step's last layer call was in doubt.
  bool step(const std::vector<std::int64_t>& inputs, std::int64_t peak, bool whole = true) {
    held_.begin(shape_, &plan_);
    bool doubts = false;
    for (const std::int64_t bytes : inputs) doubts = held_.doubts({.input_bytes = bytes});
    held_.end(peak, whole);
    return doubts;
  }

  // Over layer calls that have so much in use as they begin: '?' where the step was in doubt.
  std::string course(const std::vector<std::int64_t>& grown, std::int64_t peak, bool whole = true) {
    held_.begin(shape_, &plan_);
    std::string doubts;
    for (const std::int64_t bytes : grown) {
      doubts += held_.doubts({.input_bytes = 10, .grown_bytes = bytes}) ? '?' : '.';
    }
    held_.end(peak, whole);
    return doubts;
  }

  HeldPredictions held_;
  Plan plan_;
  ShapeKey shape_{2, 16};
};

TEST_F(HeldPredictionsTest, APlanIsDoubtedUntilAStepHasShownItsPeak) {
  EXPECT_TRUE(step({10, 10}, 90'000));
  EXPECT_FALSE(step({10, 10}, 100'000));
  take_plan(8, {2, 17});
  EXPECT_TRUE(step({10, 10}, 90'000)) << "another plan, for a larger shape";
}

TEST_F(HeldPredictionsTest, APlanIsHeldToWhatALargerOneShowed) {
  plan_.modes = {Mode::keep(), Mode::keep()};
  EXPECT_TRUE(step({20, 20}, 90'000));
  take_plan(8, {2, 12});
  EXPECT_TRUE(step({21, 10}, 90'000)) << "larger inputs than there";
  take_plan(9, {2, 11});
  EXPECT_FALSE(step({20, 10}, 90'000));
  take_plan(10, {2, 17});
  EXPECT_TRUE(step({10, 10}, 90'000)) << "none was larger";
  take_plan(11, {2, 10});
  plan_.modes[0] = Mode::selective(1);
  EXPECT_TRUE(step({10, 10}, 90'000)) << "other modes";
}

TEST_F(HeldPredictionsTest, OneThatNeededMoreThanALargerOneShowedCostsTheTrustInAll) {
  step({20, 20}, 90'000);
  take_plan(8, {2, 12});
  EXPECT_FALSE(step({20, 20}, 150'000)) << "nothing told it";
  take_plan(9, {2, 11});
  EXPECT_TRUE(step({20, 20}, 90'000));
  EXPECT_TRUE(step({20, 20}, 90'000)) << "once is not enough any more";
  EXPECT_FALSE(step({20, 20}, 90'000));
  take_plan(10, {2, 10});
  EXPECT_FALSE(step({20, 20}, 90'000)) << "it held twice";
}

TEST_F(HeldPredictionsTest, LargerInputsThanThenAreDoubtedFromThereOn) {
  step({10, 20, 10}, 90'000);
  held_.begin(shape_, &plan_);
  EXPECT_FALSE(held_.doubts({.input_bytes = 5})) << "smaller ones are not";
  EXPECT_TRUE(held_.doubts({.input_bytes = 21}));
  EXPECT_TRUE(held_.doubts({.input_bytes = 10}));
  held_.end(95'000, true);
  EXPECT_FALSE(step({10, 21, 10}, 90'000)) << "it held with these, too";
  EXPECT_TRUE(step({10, 20, 10, 10}, 90'000)) << "a layer call that was not there";
}

TEST_F(HeldPredictionsTest, ALayerThatThePlanDoesNotNameIsDoubtedFromThereOn) {
  step({10, 20, 10}, 90'000);
  held_.begin(shape_, &plan_);
  EXPECT_FALSE(held_.doubts({.input_bytes = 10}));
  EXPECT_TRUE(held_.doubts({.input_bytes = 20, .foreseen = false}));
  EXPECT_TRUE(held_.doubts({.input_bytes = 10}));
  held_.end(150'000, true);
  EXPECT_TRUE(step({10, 20, 10}, 90'000));
  EXPECT_TRUE(step({10, 20, 10}, 90'000)) << "it went without hooks for a part, and needed more";
  EXPECT_FALSE(step({10, 20, 10}, 90'000));
}

TEST_F(HeldPredictionsTest, APlanThatNeededMoreBeginsAnewAndAllMustHoldTwiceAsOftenThen) {
  step({10}, 90'000);
  EXPECT_FALSE(step({10}, 150'000)) << "nothing told it";
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_TRUE(step({10}, 90'000)) << "once is not enough any more";
  EXPECT_FALSE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, AStepThatRestedShowsNothingUnlessItNeededMore) {
  step({10}, 90'000);
  const auto rest = [&](std::int64_t peak) {
    held_.begin(shape_, &plan_);
    EXPECT_TRUE(held_.trusts());
    held_.end(peak, true, /*rested=*/true);
  };
  rest(100'000);
  EXPECT_FALSE(step({10}, 90'000));
  rest(150'000);
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_TRUE(step({10}, 90'000)) << "twice as often";
  EXPECT_FALSE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, AfterAMissNoPlanGoesWithoutHooksUntilItHeldTwice) {
  step({10}, 90'000);
  plan_.id = 8;
  step({10}, 90'000);
  EXPECT_FALSE(step({10}, 150'000));
  plan_.id = 7;
  EXPECT_TRUE(step({10}, 90'000)) << "what the other needed more of this one may, too";
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_FALSE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, MoreInUseThanInAllStepsThatHeldIsDoubtedFromThereOn) {
  EXPECT_EQ(course({0, 1000, 2000}, 90'000), "???");
  EXPECT_EQ(course({0, 1100, 2100}, 90'000), "...") << "within the rounding of 100";
  EXPECT_EQ(course({0, 1201, 2000}, 90'000), ".??");
  EXPECT_EQ(course({0, 1201, 2201}, 90'000), "...") << "it held with so much more from there on";
  EXPECT_EQ(course({0, 1201, 2302}, 90'000), "..?");
  EXPECT_EQ(course({500, 0, 0}, 90'000), "???");
}

TEST_F(HeldPredictionsTest, WhatHooksHoldIsNotWhatStepsWithoutThemHaveInUse) {
  course({0, 5000}, 90'000);  // in doubt, with hooks
  EXPECT_EQ(course({0, 1000}, 90'000), "..");
  EXPECT_EQ(course({0, 4000}, 90'000), ".?");
}

TEST_F(HeldPredictionsTest, AStepThatGrewAndDidNotHoldCostsTheTrustInAllPlans) {
  step({10}, 90'000);
  plan_.id = 8;
  course({0, 1000}, 90'000);
  EXPECT_EQ(course({0, 2000}, 90'000, /*whole=*/false), ".?");
  plan_.id = 7;
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_FALSE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, AStepThatRestedAndGrewIsInDoubt) {
  course({0, 1000, 2000}, 90'000);
  held_.begin(shape_, &plan_);
  EXPECT_FALSE(held_.grows(0, 0));
  EXPECT_FALSE(held_.grows(1, 1000));
  EXPECT_TRUE(held_.trusts());
  EXPECT_TRUE(held_.grows(2, 3000));
  EXPECT_FALSE(held_.trusts());
  held_.passed(2);
  EXPECT_TRUE(held_.doubts({.grown_bytes = 3000}));
  held_.end(150'000, true);
  EXPECT_EQ(course({0, 1000, 2000}, 90'000), "???");
}

TEST_F(HeldPredictionsTest, OnceOneWithoutHooksWasInTheWayOfTheNextThereIsNoOther) {
  step({10}, 90'000);
  EXPECT_FALSE(step({10}, 90'000));
  held_.stood_in_the_way();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, AMissThatCouldBeTakenBackCostsNoTrustInOthers) {
  EXPECT_TRUE(step({10}, 150'000));
  EXPECT_TRUE(step({10}, 90'000));
  EXPECT_FALSE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, AStepThatGaveBackShowsNothing) {
  EXPECT_TRUE(step({10}, 90'000, false));
  EXPECT_TRUE(step({10}, 90'000));
}

TEST_F(HeldPredictionsTest, PlansThatDoNotAskForItAreNeverDoubted) {
  plan_.revocable_until_held = false;
  EXPECT_FALSE(step({10}, 200'000));
  held_.begin(shape_, nullptr);
  EXPECT_FALSE(held_.doubts({.input_bytes = 10}));
  held_.end(1, true);
}

TEST_F(HeldPredictionsTest, WhereInputsVaryAtOneShapeNothingIsJoinedFromTheCallOn) {
  step({10, 20}, 90'000);
  shape_ = ShapeKey{2, 32};
  step({20, 40}, 90'000);
  held_.begin(shape_, &plan_);
  EXPECT_TRUE(held_.may_join()) << "of two shapes";
  held_.doubts({.input_bytes = 20});
  EXPECT_TRUE(held_.may_join());
  held_.doubts({.input_bytes = 30});
  EXPECT_FALSE(held_.may_join());
  held_.begin(shape_, nullptr);
  EXPECT_TRUE(held_.may_join()) << "a plan that does not ask";
}

TEST_F(HeldPredictionsTest, LayersOfAnotherClassHaveInputsOfTheirOwn) {
  step({10}, 90'000);
  held_.begin(shape_, &plan_);
  held_.doubts({.layer_class = 1, .input_bytes = 20});
  EXPECT_TRUE(held_.may_join()) << "a cast is another class";
}

}  // namespace
}  // namespace pudica::hooks
