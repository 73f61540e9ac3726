// Rules of the user for what selective modes may drop.
#include <algorithm>

#include <gtest/gtest.h>

#include "torch/class_menu.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// The menu of a toy layer under rules, applied once with all that its last step drops.
std::shared_ptr<const hooks::ClassMenu> menu_under(const MenuRules& rules) {
  hooks::cpu_meter();
  const auto tapes = std::make_shared<hooks::ClassTapes>(rules);
  ToyModel model(ToyOptions{.layers = 2, .hidden = 64});
  const at::Tensor input = at::randn({2, 9, 64});
  const StepResult expected = run_step(model, input, StepPlan{});
  StepPlan plan;
  plan.tapes = tapes;
  plan.treatments = {Treatment::kTapeLast};
  for (int step = 0; step < 4; ++step) expect_identical(expected, run_step(model, input, plan));
  return tapes->menu();
}

TEST(MenuRules, OperatorsToKeepNeverRunAgain) {
  const auto free = menu_under({});
  const auto bound = menu_under({.keep_operators = {"aten::addmm", "_scaled_dot_product_*"}});
  ASSERT_TRUE(free && bound);
  const auto runs = [](const hooks::MenuStep& step, const std::string& name) {
    return std::ranges::count(step.operators, name) > 0;
  };
  EXPECT_TRUE(runs(free->steps.back(), "addmm"));
  for (const hooks::MenuStep& step : bound->steps) {
    EXPECT_FALSE(runs(step, "addmm")) << to_string(step);
  }
  EXPECT_LT(bound->steps.back().freed_bytes, free->steps.back().freed_bytes);
  EXPECT_EQ(bound->order, free->order) << "revocation is not bound";
  EXPECT_NE(bound->id, free->id);
}

TEST(MenuRules, WhatIsToBeRecomputedIsDroppedInEveryStep) {
  const auto free = menu_under({});
  const auto bound = menu_under({.recompute_operators = {"gelu"}});
  ASSERT_TRUE(free && bound);
  EXPECT_EQ(std::ranges::count(free->steps.front().operators, "gelu"), 0);
  for (const hooks::MenuStep& step : bound->steps) {
    EXPECT_EQ(std::ranges::count(step.operators, "gelu"), 1) << to_string(step);
  }
}

TEST(MenuRules, NamesAreMatchedAndUnknownOnesRefused) {
  EXPECT_TRUE(hooks::is_named("aten::gelu", "gelu"));
  EXPECT_TRUE(hooks::is_named("gel*", "gelu"));
  EXPECT_FALSE(hooks::is_named("gelu", "gelu_backward"));
  EXPECT_TRUE(hooks::is_named("my::*", "my::scale"));
  EXPECT_FALSE(hooks::is_named("my::*", "scale"));
  AttachOptions options;
  options.menu_rules.keep_operators = {"addmm", "ad_mm"};
  const auto handle = attach(std::move(options));
  ASSERT_FALSE(handle.has_value());
  EXPECT_EQ(handle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(handle.error().message.find("'ad_mm'"), std::string::npos) << handle.error().message;
}

}  // namespace
}  // namespace pudica::testing
