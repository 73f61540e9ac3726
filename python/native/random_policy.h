// Plans drawn at random, for checks that gradients do not depend on the plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "pudica/policy.h"

namespace pudica::python {

// Another plan each step, drawn from `seed`: per layer keep, a step of its class's menu or full,
// neighbours joined now and then, revocable or not. Not thread-safe: one owner thread.
std::shared_ptr<Policy> make_random_policy(std::uint64_t seed);

// The policy of "random" or "random:seed=3"; null for other specs.
std::shared_ptr<Policy> random_policy_of(std::string_view spec);

}  // namespace pudica::python
