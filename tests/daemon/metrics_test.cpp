#include "daemon/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/daemon_parts.h"

namespace pudica::daemon {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Metrics, LabelsAreEscaped) {
  EXPECT_EQ(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
  EXPECT_EQ(escape_label("bad \xff byte"), "bad \xEF\xBF\xBD byte");
}

TEST(Metrics, RunsShowWhatIsKnownAndLeaveWhenTheyEnd) {
  DaemonParts daemon;
  const std::string id = daemon.registry.add(described("tr\"ain")).value();
  EXPECT_THAT(daemon.ask("GET", "/metrics").body, Not(HasSubstr("pudica_run_peak_bytes{")));
  ASSERT_TRUE(daemon.registry.apply(id, {0, {step_event(1, 500)}}));
  const std::string labels = "{run=\"" + id + "\",name=\"tr\\\"ain\"} ";
  const std::string shown = daemon.ask("GET", "/metrics").body;
  EXPECT_THAT(shown, HasSubstr("pudica_run_peak_bytes" + labels + "500\n"));
  EXPECT_THAT(shown, HasSubstr("pudica_run_budget_bytes" + labels + "600\n"));
  EXPECT_THAT(shown, HasSubstr("# TYPE pudica_run_steps_total counter\n"));
  ASSERT_TRUE(daemon.registry.apply(id, {0, {EndEvent{"ok"}}}));
  EXPECT_THAT(daemon.ask("GET", "/metrics").body, Not(HasSubstr(id)));
}

TEST(Metrics, OfALostRunTheStateIsToldForAnHour) {
  DaemonParts daemon;
  const std::string id = daemon.registry.add(described("silent")).value();
  const std::string state = "{run=\"" + id + "\",name=\"silent\",state=\"lost\"} ";
  EXPECT_THAT(daemon.ask("GET", "/metrics").body, HasSubstr("pudica_run_state" + state + "0\n"));
  daemon.time.pass(20);
  daemon.api.tick();
  const std::string shown = daemon.ask("GET", "/metrics").body;
  EXPECT_THAT(shown, HasSubstr("pudica_run_state" + state + "1\n"));
  EXPECT_THAT(shown, Not(HasSubstr("pudica_run_budget_bytes{")));
  EXPECT_THAT(shown, HasSubstr("pudica_runs 0\n"));
  daemon.time.pass(3599);
  EXPECT_THAT(daemon.ask("GET", "/metrics").body, HasSubstr(state));
  daemon.time.pass(1);
  EXPECT_THAT(daemon.ask("GET", "/metrics").body, Not(HasSubstr(id)));
}

TEST(Metrics, StepsWithARevocationAreCountedOnce) {
  DaemonParts daemon;
  const std::string id = daemon.registry.add(described("a")).value();
  StepEvent revoked = step_event(1, 500);
  revoked.record.revocations = 3;
  ASSERT_TRUE(daemon.registry.apply(id, {0, {revoked, step_event(2, 500)}}));
  const std::string labels = "{run=\"" + id + "\",name=\"a\"} ";
  const std::string shown = daemon.ask("GET", "/metrics").body;
  EXPECT_THAT(shown, HasSubstr("pudica_run_revoked_steps_total" + labels + "1\n"));
  EXPECT_THAT(shown, HasSubstr("pudica_run_steps_total" + labels + "2\n"));
}

TEST(Metrics, AnswersAreCountedByCode) {
  DaemonParts daemon;
  daemon.api.count_answer(200);
  daemon.api.count_answer(200);
  daemon.api.count_answer(404);
  const std::string shown = daemon.ask("GET", "/metrics").body;
  EXPECT_THAT(shown, HasSubstr("pudica_daemon_requests_total{code=\"200\"} 2\n"));
  EXPECT_THAT(shown, HasSubstr("pudica_daemon_requests_total{code=\"404\"} 1\n"));
}

}  // namespace
}  // namespace pudica::daemon
