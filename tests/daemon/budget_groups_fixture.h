// A budget group and its runs, for the tests of both.
#pragma once

#include <cstdint>
#include <string>

#include <gmock/gmock.h>

#include "daemon/budget_groups.h"

namespace pudica::daemon {

// A group "gpu" with runs that confirm when told to. Bytes are in units of 1 MiB.
class BudgetGroupsTest : public testing::Test {
 protected:
  static Bytes mib(std::int64_t count) { return Bytes(count << 20); }

  void total(std::int64_t count) { ASSERT_TRUE(groups.set_total("gpu", mib(count))); }

  std::int64_t join(const std::string& run, std::int64_t share, std::int64_t floor = 0,
                    std::int64_t in_use = 0) {
    const auto granted = groups.join({"gpu", run, mib(share), mib(floor), mib(in_use)});
    EXPECT_TRUE(granted.has_value()) << (granted ? "" : granted.error().message);
    return granted ? granted->count() >> 20 : -1;
  }

  // Reports long enough for a lower need to count.
  void need(const std::string& run, std::int64_t count) {
    for (int i = 0; i < 32; ++i) groups.need(run, mib(count));
  }

  GroupMember member(const std::string& run) const {
    const auto view = groups.view("gpu");
    for (const GroupMember& member : view->runs) {
      if (member.id == run) return member;
    }
    ADD_FAILURE() << "no run " << run;
    return {};
  }
  std::int64_t budget(const std::string& run) const {
    return member(run).budget_bytes.count() >> 20;
  }
  // What the run is to use; -1: nothing is open.
  std::int64_t pending(const std::string& run) const {
    const auto bytes = member(run).pending_bytes;
    return bytes ? bytes->count() >> 20 : -1;
  }
  std::int64_t assigned() const { return groups.view("gpu")->assigned_bytes.count() >> 20; }

  // One step of the run: it takes up its latest order.
  void step(const std::string& run) {
    for (const BudgetOrder& order : groups.take_orders()) {
      if (order.run == run) groups.confirm(run, order.number);
    }
  }
  std::uint64_t number(const std::string& run) const {
    for (const BudgetOrder& order : groups.take_orders()) {
      if (order.run == run) return order.number;
    }
    return 0;
  }

  BudgetGroups groups;
};

}  // namespace pudica::daemon
