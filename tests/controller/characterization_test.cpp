// What the controller plans and predicts for twenty models, step by step, as it is written down in
// tests/fixtures/plans.txt: a change that is to change nothing changes none of it, and one that
// changes plans shows which. PUDICA_WRITE_PLANS=1 writes it anew.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

struct Case {
  std::string name;
  SyntheticSpec spec;
  double share = 0.3;  // of the way from the least peak to keeping all, at the longest
  bool caches = false;
  std::size_t steps_late = 0;
  int changes_at = 0;  // the model drifts in this step; 0: never
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const double share : {0.02, 0.2, 0.5, 0.9, 1.2}) {
    const std::string at = " at " + std::to_string(share).substr(0, 4);
    all.push_back({"encoder" + at, {.encoder_layers = 6, .menu_steps = 3}, share});
    all.push_back({"attention" + at, {.encoder_layers = 5, .heads = 4, .menu_steps = 2}, share});
  }
  all.push_back({"below the floor", {.encoder_layers = 8}, -0.15});
  all.push_back({"two lengths", {.encoder_layers = 4, .decoder_layers = 4}});
  all.push_back(
      {"two lengths, menus", {.encoder_layers = 4, .decoder_layers = 4, .menu_steps = 3}});
  all.push_back({"accumulation", {.encoder_layers = 6, .accumulation = 3, .menu_steps = 2}});
  all.push_back({"casts", {.encoder_layers = 6, .cast_bytes = 98304, .menu_steps = 2}, 0.1});
  all.push_back({"outputs held", {.encoder_layers = 6, .menu_steps = 2, .holds_outputs = true}});
  all.push_back({"first and last differ",
                 {.encoder_layers = 6, .last_extra_bytes = 4000, .first_extra_units = 1}});
  all.push_back({"one layer", {.encoder_layers = 1, .menu_steps = 3}, 0.5});
  all.push_back({"late times", {.encoder_layers = 6, .menu_steps = 3}, 0.3, true, 2});
  all.push_back({"drift", {.encoder_layers = 6, .menu_steps = 2}, 0.3, false, 0, 30});
  all.push_back({"noisy peaks", {.encoder_layers = 6, .peak_noise = 0.01}, 0.3});
  return all;
}

// "kkf0": kept, kept, recomputed (capital: with the layer before), selective:0.
std::string letters_of(const Plan& plan) {
  std::string out;
  for (std::size_t i = 0; i < plan.modes.size(); ++i) {
    const bool joined = i < plan.joined.size() && plan.joined[i] != 0;
    switch (plan.modes[i].kind) {
      case Mode::Kind::kKeep:
        out += 'k';
        break;
      case Mode::Kind::kFull:
        out += joined ? 'F' : 'f';
        break;
      case Mode::Kind::kOffload:
        out += 'o';
        break;
      case Mode::Kind::kSelective:
        out += static_cast<char>('0' + plan.modes[i].step);
        break;
    }
  }
  return out.empty() ? "-" : out;
}

std::string run(const Case& one) {
  constexpr std::size_t kSteps = 48;
  Harness harness(one.spec);
  harness.caches = one.caches;
  harness.steps_late = one.steps_late;
  const auto shape_of = [&one](std::int64_t length) {
    return one.spec.decoder_layers > 0 ? ShapeKey{4, length, length / 2 + 24} : ShapeKey{4, length};
  };
  const Bytes budget = harness.budget_at(shape_of(512), one.share);
  std::ostringstream out;
  out << "# " << one.name << '\n';
  int number = 0;
  for (const std::int64_t length : lengths(kSteps, 7)) {
    if (++number == one.changes_at) harness.model.spec().inventory_scale = 2;
    const HarnessStep step = harness.step(shape_of(length), budget);
    const Plan& plan = *step.decision.plan;
    out << length << ' ' << letters_of(plan) << ' ' << plan.predicted_peak_bytes.count()
        << (step.decision.record ? " recorded" : "") << (plan.revocable ? "" : " free") << '\n';
  }
  EXPECT_NE(harness.controller->state(), ControllerState::kStandingDown) << one.name;
  return out.str();
}

TEST(Characterization, PlansAndPredictionsAreThoseThatAreWrittenDown) {
  const std::string path = PUDICA_FIXTURES "/plans.txt";
  std::string now;
  for (const Case& one : cases()) now += run(one);
  if (std::getenv("PUDICA_WRITE_PLANS") != nullptr) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::istringstream seen(now);
  std::string wanted, line, model;
  for (int number = 1; std::getline(file, wanted); ++number) {
    ASSERT_TRUE(std::getline(seen, line)) << path << ":" << number;
    if (wanted.starts_with("# ")) model = wanted;
    ASSERT_EQ(line, wanted) << path << ":" << number << " (" << model << ")";
  }
  EXPECT_FALSE(std::getline(seen, line)) << line;
}

}  // namespace
}  // namespace pudica::testing
