// Whatever a pool is given, it neither crashes nor loses what it knows.
#include <limits>
#include <random>

#include "controller/learned_state.h"
#include "daemon/model_support.h"
#include "inspect/model_view.h"

namespace pudica::daemon::testing {
namespace {

using namespace inspect;

TEST(ModelPoolDamage, RefusesAnEmptyFingerprint) {
  ModelPool pool;
  EXPECT_EQ(pool.observe("", Process().step({4, 64})).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.adopt("", "x").error().code, ErrorCode::kInvalidArgument);
}

TEST(ModelPoolDamage, ABadStateIsRefusedAndTheOldOneStays) {
  const auto process = taught_process();
  const std::string good = process->state();
  ModelPool pool;
  EXPECT_FALSE(pool.adopt(kFingerprint, "rubbish"));
  EXPECT_TRUE(pool.stats().empty());
  ASSERT_TRUE(pool.adopt(kFingerprint, good));
  EXPECT_FALSE(pool.adopt(kFingerprint, ""));
  EXPECT_FALSE(pool.adopt(kFingerprint, good.substr(0, good.size() / 2)));
  EXPECT_FALSE(pool.adopt(kFingerprint, process->controller().serialize("another model")));
  const auto large = pool.adopt(kFingerprint, std::string((std::size_t{4} << 20U) + 1, 'x'));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kOverBudget);
  EXPECT_NE(large.error().message.find("4194304"), std::string::npos) << large.error().message;
  EXPECT_EQ(*pool.state(kFingerprint), good);
}

TEST(ModelPoolDamage, RecordsThatMakeNoSenseAreRefusedByWhatIsWrong) {
  ModelPool pool;
  const StepRecord good = Process().step({4, 64});
  ASSERT_TRUE(pool.observe(kFingerprint, good));
  const std::string state = *pool.state(kFingerprint);
  const auto expect_refused = [&](const StepRecord& record) {
    const auto observed = pool.observe(kFingerprint, record);
    ASSERT_FALSE(observed);
    EXPECT_EQ(observed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(*pool.state(kFingerprint), state);
  };
  StepRecord bad = good;
  bad.key = ShapeKey();
  expect_refused(bad);
  bad = good;
  bad.profiles->segments[3].sample.peak_bytes = -1;
  expect_refused(bad);
  bad = good;
  bad.profiles->segments[3].sample.net_bytes = std::numeric_limits<std::int64_t>::min();
  expect_refused(bad);
  bad = good;
  bad.profiles->segments[3].sample.deltas = {std::numeric_limits<std::int64_t>::min()};
  expect_refused(bad);
  bad = good;
  bad.profiles->base_bytes = Bytes(std::numeric_limits<std::int64_t>::max());
  expect_refused(bad);
  bad = good;
  bad.profiles->structure.layers.clear();
  expect_refused(bad);
  bad = good;
  bad.profiles->structure.layers.resize(100000);
  expect_refused(bad);
}

TEST(ModelPoolDamage, AModelThatWouldGrowTooLargeStaysAsItIs) {
  ModelPoolOptions options;
  Process process;
  const StepRecord first = process.step({4, 64});
  const StepRecord second = process.step({4, 96});
  {
    ModelPool sizing;
    ASSERT_TRUE(sizing.observe(kFingerprint, first));
    options.max_state_bytes = sizing.state(kFingerprint)->size() + 100;
  }
  ModelPool pool(options);
  ASSERT_TRUE(pool.observe(kFingerprint, first));
  const std::string state = *pool.state(kFingerprint);
  const auto observed = pool.observe(kFingerprint, second);
  ASSERT_FALSE(observed);
  EXPECT_EQ(observed.error().code, ErrorCode::kOverBudget);
  EXPECT_EQ(*pool.state(kFingerprint), state);
}

// A view of a state that may be anything: every answer is a value or an error.
void ask(const std::string& state) {
  const auto view = ModelView::from_state(state, kFingerprint);
  if (!view) return;
  for (const char* shape : {"4x64", "1x1", "1000000x1000000", "4x64x8", "4"}) {
    for (const std::int64_t budget :
         {std::int64_t{0}, std::int64_t{5000000}, std::numeric_limits<std::int64_t>::max()}) {
      (void)view->estimate(shape, Bytes(budget));
      const auto explained = view->explain(shape, Bytes(budget));
      EXPECT_TRUE(!explained || !to_json(*explained, "run").empty());
    }
  }
}

TEST(ModelPoolDamage, RandomBytesAndEditsAsAStateNeverCrash) {
  // Half of them get a right checksum, so that what lies behind it is reached: the controller's
  // text, and within it the predictor's, whose own checksum an edit breaks.
  const std::string good = taught_process()->state();
  const auto body = open_state(good, kFingerprint);
  ASSERT_TRUE(body);
  std::mt19937_64 random(3);
  ModelPool pool;
  ASSERT_TRUE(pool.adopt(kFingerprint, good));
  for (int i = 0; i < 400; ++i) {
    std::string text = i % 2 == 0 ? good : *body;
    if (i % 20 == 0) text = std::string(random() % 4000, '\0');
    // The controller's own lines are the first few hundred characters.
    const std::size_t reach = i % 4 < 2 ? text.size() : std::min<std::size_t>(text.size(), 400);
    for (std::uint64_t edit = random() % 6 + 1; edit > 0 && reach > 0; --edit) {
      const std::size_t at = random() % reach;
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text[at] = static_cast<char>('0' + random() % 10);
          break;
        case 2:
          text.insert(at, std::to_string(random()));
          break;
        default:
          text.erase(at, random() % 9);
          break;
      }
      if (text.size() < reach) break;
    }
    if (i % 2 == 1) text = seal_state(text, kFingerprint);
    ask(text);
    (void)pool.adopt(kFingerprint, text).has_value();
  }
  EXPECT_TRUE(pool.state(kFingerprint));
}

TEST(ModelPoolDamage, OddRecordsInBetweenDoNotStopLearning) {
  std::mt19937_64 random(9);
  ModelPool pool;
  Process process;
  for (int i = 0; i < 300; ++i) {
    StepRecord record = Process().step({1 + static_cast<std::int64_t>(random() % 8),
                                        1 + static_cast<std::int64_t>(random() % 300)});
    for (std::uint64_t edits = random() % 4; edits > 0; --edits) {
      SegmentObservation& item =
          record.profiles->segments[random() % record.profiles->segments.size()];
      const auto size = static_cast<std::int64_t>(random() >> (random() % 60 + 2));
      item.key.layer_class = static_cast<std::uint16_t>(random() % 5);
      item.key.kind = static_cast<SegmentKind>(random() % 7);
      item.layer = static_cast<std::int32_t>(random() % 40) - 4;
      item.sample.net_bytes = random() % 2 == 0 ? size : -size;
      item.sample.peak_bytes = std::max<std::int64_t>(0, item.sample.net_bytes);
      item.sample.seconds = random() % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1;
    }
    if (random() % 9 == 0) record.profiles->structure.layers.resize(1 + random() % 20);
    if (random() % 9 == 0) record.profiles->gradients_present = true;
    (void)pool.observe(kFingerprint, record, "odd" + std::to_string(random() % 3)).has_value();
    if (const auto state = pool.state(kFingerprint); state && i % 25 == 0) ask(*state);
  }
  const std::uint64_t version = pool.version("sound");
  EXPECT_TRUE(*pool.observe("sound", process.step({4, 64})));
  EXPECT_GT(pool.version("sound"), version);
}

}  // namespace
}  // namespace pudica::daemon::testing
