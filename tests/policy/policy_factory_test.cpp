#include "policy/policy_factory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/simulated_model.h"
#include "policy/policies.h"

namespace pudica {
namespace {

using ::testing::HasSubstr;

PolicyInputs inputs_of(const SimulatedModel& model) {
  PolicyInputs inputs;
  inputs.longest_shape = ShapeKey{4, 256};
  inputs.longest_costs = model.costs(inputs.longest_shape);
  inputs.oracle_costs.emplace(inputs.longest_shape, *inputs.longest_costs);
  return inputs;
}

TEST(PolicyFactory, MakesEveryPolicyUnderItsName) {
  const PolicyInputs inputs = inputs_of(SimulatedModel{});
  for (const std::string& name : policy_names()) {
    const auto policy = make_policy(*parse_policy_spec(name), inputs);
    ASSERT_TRUE(policy.has_value()) << name << ": " << policy.error().message;
    EXPECT_EQ((*policy)->name(), name);
  }
}

TEST(PolicyFactory, HandsOptionsOver) {
  const SimulatedModel model;
  const auto every = make_policy(*parse_policy_spec("every_n:n=3"), inputs_of(model));
  (*every)->on_structure(model.structure());
  StepContext context;
  context.shape = ShapeKey{4, 16};
  const PlanPtr plan = (*every)->begin_step(context).plan;
  EXPECT_EQ(plan->modes[3], Mode::full());
  EXPECT_EQ(plan->modes[2], Mode::keep());

  const auto dtr = make_policy(*parse_policy_spec("dtr:h=rand:seed=5"), {});
  ASSERT_TRUE((*dtr)->eviction().has_value());
  EXPECT_EQ((*dtr)->eviction()->rule, EvictionRule::kRandom);
  EXPECT_EQ((*dtr)->eviction()->seed, 5U);
  EXPECT_TRUE((*dtr)->wants_menus()) << "no tape, no single tensors";
  const auto sac = make_policy(*parse_policy_spec("sac:save=gelu"), {});
  EXPECT_EQ((*sac)->keep_operators(), std::vector<std::string>{"gelu"});
  const auto usual = make_policy(*parse_policy_spec("sac"), {});
  EXPECT_EQ((*usual)->keep_operators(), products_and_attention());

  const auto mimose = make_policy(*parse_policy_spec("mimose:warmup=2"), inputs_of(model));
  for (int step = 0; step < 2; ++step) {
    const StepDecision decision = (*mimose)->begin_step(context);
    EXPECT_TRUE(decision.record);
    (*mimose)->end_step(model.run(context, decision));
  }
  EXPECT_FALSE((*mimose)->begin_step(context).record);
}

TEST(PolicyFactory, NamesTheInputThatIsMissing) {
  const auto fixed = make_policy(*parse_policy_spec("static"), {});
  ASSERT_FALSE(fixed.has_value());
  EXPECT_THAT(fixed.error().message, HasSubstr("'static' needs"));
  const auto oracle = make_policy(*parse_policy_spec("oracle"), {});
  ASSERT_FALSE(oracle.has_value());
  EXPECT_THAT(oracle.error().message, HasSubstr("'oracle' needs"));
}

TEST(PolicyFactory, RefusesCostsOfALayerWithoutModes) {
  PolicyInputs inputs = inputs_of(SimulatedModel{});
  inputs.longest_costs->layers[2].modes.clear();
  inputs.oracle_costs.begin()->second.layers[1].modes.resize(256);
  for (const char* name : {"static", "oracle"}) {
    const auto policy = make_policy(*parse_policy_spec(name), inputs);
    ASSERT_FALSE(policy.has_value());
    EXPECT_THAT(policy.error().message, HasSubstr("expected 1 to 255"));
    EXPECT_THAT(policy.error().message, HasSubstr("4x256"));
  }
}

TEST(PolicyFactory, RefusesAnUnknownName) {
  PolicySpec spec;
  spec.name = "statik";
  const auto policy = make_policy(spec, {});
  ASSERT_FALSE(policy.has_value());
  EXPECT_THAT(policy.error().message, HasSubstr("did you mean 'static'?"));
}

}  // namespace
}  // namespace pudica
