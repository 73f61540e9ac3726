// Random sequences of calls: the controller never throws and always gives a usable plan.
#include <limits>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

// A sample such as no model would give.
SegmentObservation odd_segment(std::mt19937_64& random) {
  SegmentObservation out;
  out.key.kind = static_cast<SegmentKind>(random() % 7);
  out.key.layer_class = static_cast<std::uint16_t>(random() % 4);
  out.key.variant = static_cast<std::uint8_t>(random() % 8);
  const auto kind = static_cast<Mode::Kind>(random() % 4);
  out.key.mode = {kind,
                  static_cast<std::uint16_t>(kind == Mode::Kind::kSelective ? random() % 3 : 0)};
  out.layer = static_cast<std::int32_t>(random() % 40) - 4;
  out.sample.net_bytes = static_cast<std::int64_t>(random() >> (random() % 60 + 2)) -
                         static_cast<std::int64_t>(random() % 4096);
  out.sample.peak_bytes =
      std::max<std::int64_t>({0, out.sample.net_bytes, static_cast<std::int64_t>(random() % 100)});
  out.sample.seconds = random() % 5 == 0 ? std::numeric_limits<double>::infinity() : 1e-3;
  return out;
}

class Fuzzer {
 public:
  explicit Fuzzer(std::uint64_t seed) : random_(seed), harness_(spec(seed), options(seed)) {}

  void call() {
    Controller& controller = *harness_.controller;
    switch (random_() % 12) {
      case 0:
        controller.set_budget(budget());
        break;
      case 1:
        harness_.model.spec().encoder_layers = 1 + static_cast<int>(random_() % 9);
        controller.on_structure(harness_.model.structure());
        break;
      case 2:
        controller.on_structure({});
        break;
      case 3:
        (void)controller.snapshot();
        (void)controller.estimate(shape(), budget());
        break;
      case 4: {
        const auto done = controller.restore(controller.serialize("m"), "m");
        EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().message);
        break;
      }
      case 5:
        (void)controller.begin_step({shape(), budget(), budget(), random_() % 2 == 0});
        break;
      case 6: {
        StepOutcome outcome;  // of a step never begun
        outcome.context = {shape(), budget(), budget(), false};
        outcome.peak_bytes = budget();
        for (int i = 0; i < 3; ++i) outcome.segments.push_back(odd_segment(random_));
        controller.end_step(outcome);
        break;
      }
      default:
        step();
    }
  }

 private:
  static SyntheticSpec spec(std::uint64_t seed) {
    SyntheticSpec out;
    out.encoder_layers = 1 + static_cast<int>(seed % 7);
    out.decoder_layers = static_cast<int>(seed % 3);
    out.accumulation = 1 + static_cast<int>(seed % 2);
    out.peak_noise = seed % 4 == 0 ? 0.03 : 0;
    return out;
  }
  static ControllerOptions options(std::uint64_t seed) {
    ControllerOptions out;
    out.warmup_mode = seed % 2 == 0 ? WarmupMode::kRevocable : WarmupMode::kSheltered;
    out.warmup_max_steps = 6;
    out.cache.capacity = 4;
    if (seed % 5 == 0) out.menu = {Mode::Kind::kKeep};
    if (seed % 5 == 1) out.menu = {Mode::Kind::kFull};
    return out;
  }
  Bytes budget() {
    switch (random_() % 6) {
      case 0:
        return Bytes(0);
      case 1:
        return Bytes(1);
      case 2:
        return Bytes(std::numeric_limits<std::int64_t>::max());
      default:
        return harness_.budget_at({8, 256, 64}, 0.01 * static_cast<double>(random_() % 150));
    }
  }
  ShapeKey shape() {
    const auto batch = 1 + static_cast<std::int64_t>(random_() % 8);
    const auto source = 1 + static_cast<std::int64_t>(random_() % 512);
    return {batch, source, 1 + static_cast<std::int64_t>(random_() % 128)};
  }

  void step() {
    const StepContext context = harness_.model.context(shape(), budget());
    const StepDecision decision = harness_.controller->begin_step(context);
    ASSERT_NE(decision.plan, nullptr);
    StepOutcome outcome = harness_.model.run(context, decision);
    outcome.failed = random_() % 8 == 0;
    if (random_() % 6 == 0) outcome.segments.push_back(odd_segment(random_));
    if (random_() % 10 == 0) outcome.plan = nullptr;
    if (random_() % 2 == 0) harness_.controller->on_structure(harness_.model.structure());
    harness_.controller->end_step(outcome);
  }

  std::mt19937_64 random_;
  Harness harness_;
};

TEST(ControllerFuzz, NeverThrows) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Fuzzer fuzzer(seed);
    for (int i = 0; i < 150; ++i) ASSERT_NO_THROW(fuzzer.call()) << i;
  }
}

}  // namespace
}  // namespace pudica::testing
