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

}  // namespace
}  // namespace pudica::hooks
