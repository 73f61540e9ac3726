#include "policy/policy_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PolicySpec, ReadsEveryNameAloneWithItsDefaults) {
  ASSERT_EQ(policy_names().size(), 11U);
  for (const std::string& name : policy_names()) {
    const auto spec = parse_policy_spec(name);
    ASSERT_TRUE(spec.has_value()) << name;
    EXPECT_EQ(spec->name, name);
    EXPECT_EQ(spec->text, name);
    EXPECT_TRUE(spec->menu.empty());
    EXPECT_EQ(spec->mimose_rule, MimoseRule::kPaper);
    EXPECT_EQ(spec->mimose_buffer_fraction, 0);
    EXPECT_EQ(spec->mimose_warmup_steps, 10);
    EXPECT_EQ(spec->every_n, 2);
    EXPECT_TRUE(spec->sac_save.empty());
  }
}

TEST(PolicySpec, ReadsEveryRuleOfEviction) {
  EXPECT_EQ(parse_policy_spec("dtr")->dtr_eviction.rule, EvictionRule::kDtr);
  const std::pair<const char*, EvictionRule> rules[] = {
      {"dtr:h=dtr", EvictionRule::kDtr},
      {"dtr:h=dtr_eq", EvictionRule::kDtrEq},
      {"dtr:h=local", EvictionRule::kLocal},
      {"dtr:h=lru", EvictionRule::kLru},
      {"dtr:h=size", EvictionRule::kSize},
      {"dtr:h=msps", EvictionRule::kMsps},
      {"dtr:h=rand:seed=7", EvictionRule::kRandom},
      {"dtr:h=megengine", EvictionRule::kMegEngine}};
  for (const auto& [text, rule] : rules) {
    EXPECT_EQ(parse_policy_spec(text)->dtr_eviction.rule, rule) << text;
  }
  EXPECT_EQ(parse_policy_spec("dtr:h=rand:seed=7")->dtr_eviction.seed, 7U);
}

TEST(PolicySpec, ReadsOperatorsAsTorchOpsNamesThem) {
  const auto spec = parse_policy_spec("sac:save=addmm+_scaled_dot_product_*+my.scale");
  ASSERT_TRUE(spec.has_value());
  EXPECT_THAT(spec->sac_save, ElementsAre("addmm", "_scaled_dot_product_*", "my::scale"));
}

TEST(PolicySpec, ReadsAMenuJoinedByPlus) {
  const auto spec = parse_policy_spec("pudica:menu=keep+full");
  ASSERT_TRUE(spec.has_value());
  EXPECT_THAT(spec->menu, ElementsAre(Mode::Kind::kKeep, Mode::Kind::kFull));
  EXPECT_EQ(spec->text, "pudica:menu=keep+full");
  EXPECT_THAT(parse_policy_spec("pudica:menu=offload+selective+offload")->menu,
              ElementsAre(Mode::Kind::kOffload, Mode::Kind::kSelective));
}

TEST(PolicySpec, ReadsSeveralOptionsInAnyOrder) {
  const auto spec = parse_policy_spec("mimose:buffer=0.25:warmup=30:rule=code");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->mimose_rule, MimoseRule::kCode);
  EXPECT_EQ(spec->mimose_buffer_fraction, 0.25);
  EXPECT_EQ(spec->mimose_warmup_steps, 30);
  EXPECT_EQ(parse_policy_spec("every_n:n=3")->every_n, 3);
}

TEST(PolicySpec, RefusesAnUnknownNameAndOffersTheNearest) {
  const auto spec = parse_policy_spec("mimos");
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(spec.error().message, HasSubstr("'mimos'"));
  EXPECT_THAT(spec.error().message, HasSubstr("reactive"));
  EXPECT_THAT(spec.error().message, HasSubstr("did you mean 'mimose'?"));
  EXPECT_THAT(parse_policy_spec("zzzzzzzzzzzz").error().message, Not(HasSubstr("did you mean")));
}

TEST(PolicySpec, RefusesAnUnknownOptionNamingPolicyOptionAndChoices) {
  const std::string message = parse_policy_spec("mimose:bufer=0.1").error().message;
  EXPECT_THAT(message, HasSubstr("'mimose'"));
  EXPECT_THAT(message, HasSubstr("'bufer=0.1'"));
  EXPECT_THAT(message, HasSubstr("rule, buffer, warmup"));
  EXPECT_THAT(message, HasSubstr("did you mean 'buffer'?"));
  EXPECT_THAT(parse_policy_spec("full:n=2").error().message, HasSubstr("takes no options"));
  EXPECT_THAT(parse_policy_spec("none:").error().message, HasSubstr("takes no options"));
}

TEST(PolicySpec, RefusesABadValueNamingWhatIsExpected) {
  for (const char* text : {"mimose:rule=papers", "mimose:rule=",
                           "mimose:rule",        "mimose:buffer=1",
                           "mimose:buffer=-0.1", "mimose:buffer=nan",
                           "mimose:buffer=0.1x", "mimose:warmup=1",
                           "mimose:warmup=2.5",  "every_n:n=0",
                           "every_n:n=-1",       "every_n:n=99999999999999999999",
                           "every_n:n=",         "dtr:h=",
                           "dtr:h=fifo",         "dtr:seed=x",
                           "sac:save=",          "sac:save=mm+",
                           "sac:save=*",         "sac:save=m*m",
                           "sac:save=a.b.c",     "sac:save=.mm",
                           "sac:save=m m",       "pudica:menu=",
                           "pudica:menu=keep+",  "pudica:menu=keep+folded"}) {
    const auto spec = parse_policy_spec(text);
    ASSERT_FALSE(spec.has_value()) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(spec.error().message, HasSubstr("expected")) << text;
  }
}

TEST(PolicySpec, RefusesAnOptionGivenTwice) {
  EXPECT_THAT(parse_policy_spec("mimose:rule=code:rule=paper").error().message,
              HasSubstr("given twice"));
}

TEST(PolicySpec, ReadsAList) {
  const auto specs = parse_policy_list("none, every_n:n=4 ,mimose:rule=code");
  ASSERT_TRUE(specs.has_value());
  ASSERT_EQ((*specs).size(), 3U);
  EXPECT_EQ((*specs)[0].name, "none");
  EXPECT_EQ((*specs)[1].every_n, 4);
  EXPECT_EQ((*specs)[1].text, "every_n:n=4");
  EXPECT_EQ((*specs)[2].mimose_rule, MimoseRule::kCode);
}

TEST(PolicySpec, RefusesAListWithAnEmptyOrBadEntry) {
  for (const char* text : {"", "none,", ",none", "none,,full", "none, ,full"}) {
    const auto specs = parse_policy_list(text);
    ASSERT_FALSE(specs.has_value()) << text;
    EXPECT_THAT(specs.error().message, HasSubstr("empty entry"));
  }
  EXPECT_THAT(parse_policy_list("none,ful").error().message, HasSubstr("did you mean 'full'?"));
}

}  // namespace
}  // namespace pudica
