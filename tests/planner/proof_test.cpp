#include "planner/proof.h"

#include <gtest/gtest.h>

#include "support/exhaustive_planner.h"

namespace pudica::planner {
namespace {

// Two-mode layers of one size: the LP takes parts of layers, no plan can.
Chain uniform(int layers) {
  Chain chain;
  for (int i = 0; i < layers; ++i) chain.layers.push_back({{100, 120, 0}, {10, 120, 1000}});
  return chain;
}

struct Searched {
  Candidates candidates;
  ScaledBytes bytes;
  LpCertificate certificate;
  Table table;
  Incumbent incumbent;

  Searched(const Chain& chain, std::int64_t budget, ProofOptions options) {
    EXPECT_TRUE(candidates.collect(chain).has_value());
    bytes.scale(candidates);
    for (std::size_t i = 0; i < candidates.layers(); ++i) {  // all slow: far from the best
      incumbent.choice.push_back(static_cast<std::uint8_t>(candidates.of(i).size() - 1));
    }
    EXPECT_LE(candidates.totals(incumbent.choice).peak_bytes, budget);
    incumbent.time_ns = candidates.totals(incumbent.choice).time_ns;
    incumbent.bound_ns = certificate.bound_ns(candidates, budget);
    TimeCells cells;
    cells.set(candidates.layers(), table_cells(candidates.layers(), 64), incumbent.time_ns);
    table.build(candidates, bytes, cells);
    certificate.prepare_rest(candidates, budget);
    options.budget_bytes = budget;
    Proof().run(candidates, certificate, table, options, &incumbent);
  }
};

TEST(Proof, FindsTheOptimumAndProvesIt) {
  for (const std::int64_t budget : {215, 480, 500, 700, 900}) {
    const Searched searched(uniform(10), budget, {.states = 4096});
    EXPECT_EQ(searched.incumbent.bound_ns, searched.incumbent.time_ns) << budget;
    EXPECT_EQ(searched.candidates.totals(searched.incumbent.choice).time_ns,
              searched.incumbent.time_ns);
    EXPECT_LE(searched.candidates.totals(searched.incumbent.choice).peak_bytes, budget);
  }
}

TEST(Proof, BoundsByWhatItDroppedWhereItHasTooFewStates) {
  Chain chain;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t odd = 7 * (i * i % 11);
    chain.layers.push_back(
        {{100 + odd, 300, 0}, {60 + odd / 2, 300, 370 + 3 * odd}, {10, 300, 1000}});
  }
  const Searched wide(chain, 2500, {.states = 1 << 20});
  const Searched narrow(chain, 2500, {.states = 1});
  EXPECT_EQ(wide.incumbent.bound_ns, wide.incumbent.time_ns);
  EXPECT_LE(narrow.incumbent.bound_ns, wide.incumbent.time_ns);
  EXPECT_GE(narrow.incumbent.time_ns, wide.incumbent.time_ns);
}

TEST(Proof, LooksForNoSavingThatIsGoodEnough) {
  Searched exact(uniform(10), 500, {.states = 4096});
  const std::int64_t best = exact.incumbent.time_ns;
  exact.incumbent.bound_ns = best - 900;
  exact.certificate.prepare_rest(exact.candidates, 500);
  const Choice before = exact.incumbent.choice;
  Proof().run(exact.candidates, exact.certificate, exact.table,
              {.budget_bytes = 500, .good_enough_ns = 250, .states = 4096}, &exact.incumbent);
  EXPECT_EQ(exact.incumbent.choice, before);
  EXPECT_EQ(exact.incumbent.bound_ns, best - 250);
}

TEST(LpCertificate, RestOfTheLayersIsNeverAboveTheirBest) {
  Candidates candidates;
  const Chain chain = uniform(6);
  ASSERT_TRUE(candidates.collect(chain).has_value());
  LpCertificate certificate;
  const std::int64_t bound = certificate.bound_ns(candidates, 300);
  certificate.prepare_rest(candidates, 300);
  EXPECT_NEAR(static_cast<double>(certificate.least_ns(0, 300)), static_cast<double>(bound), 1.0);
  for (std::size_t first = 0; first <= 6; ++first) {
    Chain rest = chain;
    rest.layers.erase(rest.layers.begin(),
                      rest.layers.begin() + static_cast<std::ptrdiff_t>(first));
    const testing::ExhaustivePlanner judge(rest);
    for (std::int64_t room = 0; room <= 700; room += 10) {
      const auto best_ns = judge.best_ns(room);
      if (!best_ns) continue;
      EXPECT_LE(certificate.least_ns(first, room), *best_ns) << first << ' ' << room;
    }
  }
}

}  // namespace
}  // namespace pudica::planner
