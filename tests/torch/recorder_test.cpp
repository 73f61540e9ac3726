#include "torch/recorder.h"

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

TEST(Recorder, KnowsWhichLayerMadeWhatIsThereNow) {
  const int key = 0;
  const int again = 0;
  const int later = 0;
  Recorder recorder(64);
  recorder.event(8, &later);
  recorder.event(-8, &later);
  recorder.mark(MarkKind::kForwardBegin, 0);
  recorder.event(8, &key);
  recorder.event(16, &again);
  recorder.event(-16, &again);
  recorder.mark(MarkKind::kForwardEnd, 0);
  recorder.event(16, &again);  // the same address, handed out anew
  EXPECT_TRUE(recorder.was_made_by(0, &key));
  EXPECT_FALSE(recorder.was_made_by(0, &again)) << "made in the gap behind it";
  EXPECT_FALSE(recorder.was_made_by(0, &later)) << "before it";
  EXPECT_FALSE(recorder.was_made_by(1, &key)) << "another layer, or one never called";
  recorder.mark(MarkKind::kForwardBegin, 1);
  recorder.event(8, &later);
  EXPECT_FALSE(recorder.was_made_by(1, &later)) << "its forward is under way";
  recorder.mark(MarkKind::kForwardEnd, 1);
  EXPECT_TRUE(recorder.was_made_by(1, &later));
  EXPECT_TRUE(recorder.was_made_by(0, &key)) << "still";
  recorder.clear();
  EXPECT_FALSE(recorder.was_made_by(0, &key));
}

TEST(Recorder, TellsWatchesOfOneAddressApart) {
  const int place = 0;
  Recorder recorder(64);
  recorder.event(8, &place);
  const std::size_t first = recorder.watch(&place);
  recorder.event(-8, &place);
  recorder.event(16, &place);
  const std::size_t second = recorder.watch(&place);
  EXPECT_EQ(recorder.freed_at(first), 1);
  EXPECT_EQ(recorder.freed_at(second), Recorder::kNone) << "it is live";
  recorder.event(-16, &place);
  EXPECT_EQ(recorder.freed_at(first), 1);
  EXPECT_EQ(recorder.freed_at(second), 3);
  EXPECT_EQ(recorder.freed_at(&place), 3) << "the latest";
  EXPECT_EQ(recorder.freed_at(Recorder::kMostWatched), Recorder::kNone) << "passed over";
}

}  // namespace
}  // namespace pudica::hooks
