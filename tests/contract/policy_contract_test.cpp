// Every policy that the factory makes, held to the contract.
#include "contract/policy_contract.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "policy/policy_factory.h"

namespace pudica {
namespace {

PolicyInputs inputs_of(const SimulatedModel& model) {
  PolicyInputs inputs;
  inputs.longest_shape = ShapeKey{4, 400};
  inputs.longest_costs = model.costs(inputs.longest_shape);
  // Some of the lengths that come are left out: the oracle must cope.
  for (std::int64_t length = 1; length <= 400; length += 1 + length % 3) {
    const ShapeKey shape{4, length};
    inputs.oracle_costs.emplace(shape, model.costs(shape));
  }
  return inputs;
}

PolicyMaker maker_of(const std::string& text) {
  PolicyMaker maker;
  maker.name = text;
  std::ranges::replace_if(
      maker.name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  maker.make = [text](const SimulatedModel& model) {
    auto policy = make_policy(*parse_policy_spec(text), inputs_of(model));
    if (!policy) throw std::runtime_error(policy.error().message);
    return *policy;
  };
  return maker;
}

std::vector<PolicyMaker> all_makers() {
  std::vector<PolicyMaker> makers;
  for (const std::string& name : policy_names()) makers.push_back(maker_of(name));
  for (const char* text :
       {"every_n:n=1", "every_n:n=5", "sac:save=gelu", "dtr:h=megengine", "mimose:rule=code",
        "mimose:buffer=0.3", "mimose:warmup=2", "pudica:menu=keep+full", "pudica:menu=full",
        "pudica:menu=keep+offload", "pudica:menu=keep+selective+offload+full"}) {
    makers.push_back(maker_of(text));
  }
  return makers;
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyContract, testing::ValuesIn(all_makers()),
                         [](const testing::TestParamInfo<PolicyMaker>& tested) {
                           return tested.param.name;
                         });

}  // namespace
}  // namespace pudica
