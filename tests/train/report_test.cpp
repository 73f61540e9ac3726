#include "train/report.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/html.h"
#include "train/sample_run.h"

namespace pudica::train {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// The first thing wrong with the tags of a page, or nothing: each must be closed in order. The
// content of script and style is text.
std::string tag_error(std::string_view page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find('<'); at != std::string_view::npos; at = page.find('<', at)) {
    const auto end = page.find('>', at);
    if (end == std::string_view::npos) return "a tag without end";
    const auto tag = page.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    const auto name = std::string(tag.substr(tag.starts_with('/') ? 1 : 0));
    const auto word = name.substr(0, name.find_first_of(" \n"));
    if (tag.starts_with('/')) {
      if (open.empty() || open.back() != word) return "</" + word + "> closes nothing";
      open.pop_back();
      continue;
    }
    open.push_back(word);
    if (word == "script" || word == "style") {
      at = page.find("</" + word + ">", end);
      if (at == std::string_view::npos) return word + " without end";
    }
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

std::string between(const std::string& text, const std::string& first, const std::string& last) {
  const auto begin = text.find(first);
  if (begin == std::string::npos) return {};
  const auto from = begin + first.size();
  return text.substr(from, text.find(last, from) - from);
}

json page_data(const std::string& page) {
  return json::parse(between(page, "id=\"data\">", "</script>"));
}

TEST(Report, IsWellFormed) {
  EXPECT_EQ(tag_error("<a><b></a>"), "</a> closes nothing") << "the check itself";
  EXPECT_EQ(tag_error("<a>"), "<a> is not closed");
  EXPECT_EQ(tag_error(report_html(sample_run())), "");
  EXPECT_EQ(tag_error(report_html(RunResult{})), "");
}

TEST(Report, FillsInEveryPart) {
  const auto page = report_html(sample_run());
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, HasSubstr("stayed within the budget"));
  EXPECT_THAT(page, HasSubstr("1.050x"));
  EXPECT_THAT(page, HasSubstr("text.txt"));
  EXPECT_THAT(page, Not(HasSubstr("/somewhere"))) << "no folder of the machine";
}

TEST(Report, AsksTheNetworkForNothing) {
  const auto page = report_html(sample_run());
  for (const auto* word : {"src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
}

TEST(Report, CarriesTheStepsAndPlans) {
  auto run = sample_run();
  run.policies[2].plans =
      json::array({{{"shape", "4x100"}, {"modes", {"keep", "full"}}, {"measured_bytes", 5}},
                   "odd",
                   {{"a", 1}}});
  const auto data = page_data(report_html(run));
  EXPECT_EQ(data["budget"], 2000);
  ASSERT_EQ(data["policies"].size(), 3U);
  EXPECT_EQ(data["policies"][0]["peak"][0], 3500);
  EXPECT_EQ(data["policies"][2]["step"].size(), 20U);
  ASSERT_EQ(data["policies"][2]["plans"].size(), 1U) << "what cannot be drawn is left out";
  EXPECT_EQ(data["policies"][2]["plans"][0]["modes"][1], "full");
}

TEST(Report, DrawsEachBudgetAsLongAsItHeld) {
  auto run = sample_run();
  EXPECT_EQ(page_data(report_html(run))["budgets"],
            json::parse(R"([{"step":0,"budget_bytes":2000}])"));
  for (std::size_t i = 12; i < 20; ++i) run.policies[2].rows[i].budget = Bytes(1000);
  EXPECT_EQ(page_data(report_html(run))["budgets"],
            json::parse(R"([{"step":0,"budget_bytes":2000},{"step":12,"budget_bytes":1000}])"));
}

TEST(Report, ColoursAreTheStylesAndPudicaKeepsItsOwn) {
  EXPECT_EQ(colour_of("pudica", 0), colour_of("pudica", 6));
  for (std::size_t index = 0; index < 30; ++index) {
    EXPECT_LT(colour_of("other", index), 10U);
    EXPECT_NE(colour_of("other", index), colour_of("pudica", index));
  }
}

TEST(Report, NamesCannotBreakOut) {
  auto run = sample_run();
  run.policies[0].name = "</script><script>alert(1)</script>";
  run.policies[1].detail = "\"<b>";
  run.policies[1].status = PolicyStatus::kFailed;
  run.options.data.path = "<i>&.txt";
  const auto page = report_html(run);
  EXPECT_EQ(tag_error(page), "");
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_EQ(page_data(page)["policies"][0]["name"], run.policies[0].name);
  EXPECT_EQ(escape_html("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
}

}  // namespace
}  // namespace pudica::train
