#include "planner/lp_certificate.h"

#include <gtest/gtest.h>

namespace pudica::planner {
namespace {

Candidates collected(const Chain& chain) {
  Candidates candidates;
  EXPECT_TRUE(candidates.collect(chain).has_value());
  return candidates;
}

// Ten layers: keeping 100 saves 1000 ns over keeping 10; nothing but sums binds.
Chain ten_layers() {
  Chain chain;
  for (int i = 0; i < 10; ++i) chain.layers.push_back({{100, 100, 0}, {10, 100, 1000}});
  return chain;
}

TEST(LpCertificate, IsTheLpValueWhereOnlyTheSumBinds) {
  const Candidates candidates = collected(ten_layers());
  LpCertificate certificate;
  // 450 bytes short of keeping all: five layers at 90 each.
  EXPECT_NEAR(static_cast<double>(certificate.bound_ns(candidates, 550)), 5000, 1);
  // Half a layer more: the LP takes half of it.
  EXPECT_NEAR(static_cast<double>(certificate.bound_ns(candidates, 505)), 5500, 1);
  EXPECT_LE(certificate.bound_ns(candidates, 505), 5500);
}

TEST(LpCertificate, IsZeroWhereEverythingFits) {
  LpCertificate certificate;
  EXPECT_EQ(certificate.bound_ns(collected(ten_layers()), 5000), 0);
}

TEST(LpCertificate, SeesThatBytesBelowALayersNeedAreFree) {
  // Layer 0 needs 500 to run whatever the rest keeps, so the rest may keep 400 for nothing.
  Chain chain = ten_layers();
  chain.layers.insert(chain.layers.begin(), {{0, 500, 0}});
  LpCertificate certificate;
  EXPECT_NEAR(static_cast<double>(certificate.bound_ns(collected(chain), 550)), 5000, 1);
  EXPECT_LE(certificate.bound_ns(collected(chain), 505), 5500);
}

TEST(LpCertificate, HoldsForASingleModeAndForNoLayers) {
  Chain chain;
  LpCertificate certificate;
  EXPECT_EQ(certificate.bound_ns(collected(chain), 0), 0);
  chain.layers = {{{5, 9, 3}}};
  EXPECT_EQ(certificate.bound_ns(collected(chain), 9), 0);  // over the fastest choice
}

TEST(LpCertificate, RoundsToAChoiceThatFits) {
  const Candidates candidates = collected(ten_layers());
  LpCertificate certificate;
  for (std::int64_t budget = 190; budget < 1000; budget += 7) {
    certificate.bound_ns(candidates, budget);
    Choice choice;
    certificate.round(candidates, budget, &choice);
    ASSERT_LE(candidates.totals(choice).peak_bytes, budget);
    ASSERT_GE(candidates.totals(choice).time_ns, certificate.bound_ns(candidates, budget));
  }
  Choice choice;
  EXPECT_THROW(certificate.round(candidates, 100, &choice), BugError);
}

}  // namespace
}  // namespace pudica::planner
