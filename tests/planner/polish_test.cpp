#include "planner/polish.h"

#include <gtest/gtest.h>

namespace pudica::planner {
namespace {

Candidates collected(const Chain& chain) {
  Candidates candidates;
  EXPECT_TRUE(candidates.collect(chain).has_value());
  return candidates;
}

Chain three_layers() {
  Chain chain;
  chain.layers = {{{100, 100, 0}, {10, 100, 50}},
                  {{100, 100, 0}, {60, 100, 20}, {10, 100, 70}},
                  {{100, 100, 0}, {10, 100, 60}}};
  return chain;
}

TEST(Polish, TakesTheUpgradeThatSavesMostFirst) {
  const Candidates candidates = collected(three_layers());
  Choice choice{1, 2, 1};
  Polish().run(candidates, 120, &choice);
  // 90 bytes are free after the floor's 30: layer 1 gains 70 but then needs 110 + 100 at layer 2;
  // layer 2 gains 60 and needs 120.
  EXPECT_EQ(choice, (Choice{1, 2, 0}));
}

TEST(Polish, RepeatsUntilNothingFits) {
  const Candidates candidates = collected(three_layers());
  Choice choice{1, 2, 1};
  Polish().run(candidates, 300, &choice);
  EXPECT_EQ(choice, (Choice{0, 0, 0}));
}

TEST(Polish, LeavesAChoiceThatCannotBeImproved) {
  const Candidates candidates = collected(three_layers());
  Choice choice{1, 2, 1};
  Polish().run(candidates, 119, &choice);
  EXPECT_EQ(choice, (Choice{1, 2, 1}));
}

TEST(FastestFirst, GivesTheBytesToTheFirstLayersAndLeavesRoomForTheRest) {
  const Candidates candidates = collected(three_layers());
  Choice choice;
  fastest_first(candidates, 220, &choice);
  EXPECT_EQ(choice, (Choice{0, 2, 0}));
  EXPECT_THROW(fastest_first(candidates, 100, &choice), BugError);
}

}  // namespace
}  // namespace pudica::planner
