// Goal: the planner against integer programs, which know nothing of tables or recursions.
// Method: CBC solves the choice of modes under prefix rows, chains of up to 20 layers; and
// Checkmate's program has its known optimum, so that the way to CBC can be trusted.
#include <cmath>

#include <gtest/gtest.h>

#include "planner_chains.h"
#include "pudica/planner.h"
#include "support/checkmate.h"
#include "support/integer_program.h"

namespace pudica {
namespace {

using testing::Checkmate;
using testing::IntegerProgram;
using testing::pick;
using testing::Random;

constexpr std::uint64_t kSeed = 1602;

class IntegerProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!IntegerProgram::solver_is_installed()) {
      GTEST_SKIP() << "cbc is not installed: apt-get install coinor-cbc";
    }
  }
};

// A unit chain of 8 layers (17 nodes) within 4 units: 26 computations, 23 in the relaxed program.
TEST_F(IntegerProgramTest, CheckmateOfTheUnitChainHasItsKnownOptimum) {
  const auto graph = testing::unit_chain(8);
  ASSERT_EQ(graph.nodes, 17);
  const auto best = Checkmate(graph, 4, IntegerProgram::Kind::kBinary).solve();
  ASSERT_TRUE(best.has_value());
  EXPECT_NEAR(*best, 26, 1e-6);
  const auto relaxed = Checkmate(graph, 4, IntegerProgram::Kind::kContinuous).solve();
  ASSERT_TRUE(relaxed.has_value());
  EXPECT_NEAR(*relaxed, 23, 0.5);
  // With room for everything each node is computed once.
  EXPECT_NEAR(*Checkmate(graph, 17, IntegerProgram::Kind::kBinary).solve(), 17, 1e-6);
}

// x[i][m]: layer i is in mode m. Each layer has one; S_{i-1} + W_i and S_L + tail stay within the
// budget.
std::optional<double> best_by_program(const Chain& chain, std::int64_t budget) {
  IntegerProgram program;
  std::vector<IntegerProgram::Term> held;
  for (const auto& layer : chain.layers) {
    std::vector<IntegerProgram::Term> one;
    std::vector<IntegerProgram::Term> none;
    std::vector<IntegerProgram::Term> row = held;
    for (const ChainMode& mode : layer) {
      const int x = program.add_variable(mode.time_ns, IntegerProgram::Kind::kBinary);
      one.push_back({1, x});
      none.push_back({-1, x});
      row.push_back({mode.peak_bytes, x});
      held.push_back({mode.kept_bytes, x});
    }
    program.add_row(one, 1);
    program.add_row(none, -1);
    program.add_row(row, budget);
  }
  program.add_row(held, budget - chain.tail_bytes);
  return program.solve();
}

// Sizes that CBC's tolerances cannot confuse.
Chain small_numbers(Random& random, std::size_t layers, std::size_t modes) {
  Chain chain;
  for (std::size_t i = 0; i < layers; ++i) {
    auto& layer = chain.layers.emplace_back();
    std::int64_t kept = pick(random, 60, 200);
    std::int64_t time_ns = 0;
    for (std::size_t m = 0; m < modes; ++m) {
      const auto gradients = static_cast<std::int64_t>(layers - i) * 5;
      layer.push_back({kept, kept + pick(random, 20, 120) + gradients, time_ns});
      kept = pick(random, kept / 3, kept);
      time_ns += pick(random, 10, 500);
    }
  }
  chain.tail_bytes = pick(random, 0, 200);
  return chain;
}

TEST_F(IntegerProgramTest, PlansAreWithinTheirCertificateOfTheProgramsOptimum) {
  Random random(kSeed);
  const auto planner = make_planner({});
  for (int n = 0; n < 25; ++n) {
    const auto layers = static_cast<std::size_t>(pick(random, 3, 20));
    const Chain chain = small_numbers(random, layers, static_cast<std::size_t>(pick(random, 2, 5)));
    const std::int64_t floor = floor_plan(chain).peak_bytes;
    const std::int64_t most = evaluate(chain, std::vector<std::uint8_t>(layers, 0)).peak_bytes;
    const std::int64_t budget = pick(random, floor, std::max(floor, most));
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    const auto best = best_by_program(chain, budget);
    ASSERT_TRUE(best.has_value());
    const auto best_ns = static_cast<std::int64_t>(std::llround(*best));
    const auto plan = planner->solve(chain, budget, {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_LE(plan->lower_bound_ns, best_ns);
    EXPECT_GE(plan->time_ns, best_ns);
    EXPECT_FALSE(best_by_program(chain, floor - 1).has_value());
  }
}

}  // namespace
}  // namespace pudica
