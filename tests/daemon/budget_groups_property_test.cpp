// Many runs in one group, simulated: messages are late, lost or doubled, runs come, go and die.
//
// Goal: the budgets that runs really use never add up to more than the total, at any instant; a
// lender whose need rises has its share back within a step of every borrower; what can be lent is
// lent. Method: a discrete simulation with its own account of what each run uses. A run takes up
// the latest order that has reached it when its next step begins, as the client does; orders and
// confirmations travel for random times, and those that were lost are sent again later, which is
// what the daemon does with orders that stay open.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <queue>
#include <random>
#include <sstream>

#include <gmock/gmock.h>

#include "daemon/budget_groups.h"

namespace pudica::daemon {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Lengths of real examples: the first column.
std::vector<std::int64_t> trace(const std::string& name) {
  const char* const root = std::getenv("PUDICA_SOURCE_DIR");
  std::ifstream in(std::string(root == nullptr ? "." : root) + "/data/" + name);
  std::string line;
  std::getline(in, line);
  std::vector<std::int64_t> lengths;
  while (std::getline(in, line)) lengths.push_back(std::stoll(line));
  return lengths;
}

const std::vector<std::vector<std::int64_t>>& traces() {
  static const std::vector<std::vector<std::int64_t>> all{
      trace("squad_features_512_128_every5.csv"), trace("qqp.csv"), trace("swag_val500.csv"),
      trace("multi30k_en_de.csv"), trace("alpaca5k.csv")};
  return all;
}

struct Conditions {
  std::int64_t max_delay = 0;  // ticks that a message travels at most
  double lost = 0;             // messages lost
  double doubled = 0;          // confirmations that arrive twice, the second one later
  double churn = 0;            // chance a tick that a run leaves, dies or another one joins
  double total_changes = 0;    // chance a tick that an operator sets another total
};

// A training process as it really is: the group does not see this.
struct Process {
  std::string id;
  std::int64_t uses = 0;  // the budget in force in this step
  std::int64_t floor = 0;
  std::int64_t static_bytes = 0;
  std::int64_t bytes_per_token = 0;
  std::size_t trace = 0;
  std::size_t position = 0;
  std::int64_t step_ticks = 1;
  std::int64_t next_step = 0;
  std::uint64_t known_number = 0;  // of the latest order that has reached it
  std::int64_t known_bytes = 0;
  std::uint64_t taken_number = 0;
  std::int64_t steps = 0;
  // Killed, or cut off from the daemon, which does not know which of the two.
  std::int64_t silent_since = -1;
  bool alive = true;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, std::int64_t runs, std::int64_t total, Conditions conditions)
      : random_(seed), total_(total), ceiling_(total), conditions_(conditions) {
    EXPECT_TRUE(groups.set_total("gpu", Bytes(total)));
    for (std::int64_t i = 0; i < runs; ++i) start();
  }

  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

  // Starts a run; false where the group refuses it.
  bool start() {
    Process process;
    process.id = "run" + std::to_string(++started_);
    process.static_bytes = pick(total_ / 200, total_ / 100);
    process.floor = process.static_bytes;
    process.bytes_per_token = pick(total_ / 100000, total_ / 5000);
    process.trace = static_cast<std::size_t>(pick(0, 4));
    process.position = static_cast<std::size_t>(pick(0, 1000));
    process.step_ticks = pick(1, 12);
    process.next_step = now_ + pick(0, 5);
    const std::int64_t share = pick(total_ / 100, total_ / 3);
    const auto granted =
        groups.join({"gpu", process.id, Bytes(share), Bytes(process.floor), Bytes(0)});
    if (!granted) return false;
    process.uses = groups.begin(process.id).count();
    // What nobody can do without is counted, even where nothing is free.
    if (granted->count() < process.floor) {
      ceiling_ = std::max(ceiling_, view().assigned_bytes.count());
    }
    process.known_bytes = process.uses;
    processes.push_back(process);
    check();
    return true;
  }

  void tick() {
    ++now_;
    deliver();
    for (Process& process : processes) {
      if (process.alive && now_ >= process.next_step) step(process);
    }
    if (chance(conditions_.churn)) churn();
    if (chance(conditions_.total_changes)) change_total();
    bury();
    send_orders();
    check();
  }
  void run(std::int64_t ticks) {
    for (std::int64_t i = 0; i < ticks && !testing::Test::HasFailure(); ++i) tick();
  }

  [[nodiscard]] std::int64_t used() const {
    std::int64_t sum = 0;
    for (const Process& process : processes) sum += process.uses;
    return sum;
  }
  [[nodiscard]] std::int64_t longest_step() const {
    std::int64_t ticks = 0;
    for (const Process& process : processes) ticks = std::max(ticks, process.step_ticks);
    return ticks;
  }
  [[nodiscard]] GroupView view() const { return *groups.view("gpu"); }

  // Orders were handed to runs since construction.
  [[nodiscard]] std::int64_t orders_sent() const { return orders_sent_; }

  BudgetGroups groups;
  std::vector<Process> processes;
  // What every run reports instead of its trace, where set.
  std::map<std::string, std::int64_t> fixed_needs;

 private:
  struct Message {
    std::int64_t at = 0;
    bool is_order = false;
    std::string run;
    std::uint64_t number = 0;
    std::int64_t bytes = 0;
    bool operator>(const Message& other) const { return at > other.at; }
  };

  void check() {
    const GroupView now = view();
    ASSERT_LE(used(), now.assigned_bytes.count()) << "at tick " << now_;
    ASSERT_LE(now.assigned_bytes.count(), now.total_bytes->count());
    // A total that was lowered comes down as runs give back, and never goes up again by itself.
    ASSERT_LE(now.total_bytes->count(), ceiling_) << "at tick " << now_;
    ceiling_ = now.total_bytes->count();
  }

  void change_total() {
    const std::int64_t total = pick(total_ / 2, total_);
    if (!groups.set_total("gpu", Bytes(total))) return;  // below the floors
    ceiling_ = std::max(ceiling_, total);
  }

  void send(Message message) {
    if (chance(conditions_.lost)) return;
    message.at = now_ + pick(0, conditions_.max_delay);
    messages_.push(message);
    if (message.is_order || !chance(conditions_.doubled)) return;
    message.at += pick(1, 4 * conditions_.max_delay + 40);
    messages_.push(message);
  }

  void deliver() {
    while (!messages_.empty() && messages_.top().at <= now_) {
      const Message message = messages_.top();
      messages_.pop();
      if (!message.is_order) {
        groups.confirm(message.run, message.number);
        check();
        continue;
      }
      const auto process = std::ranges::find(processes, message.run, &Process::id);
      // Numbers rise: one that comes after a later one is old.
      if (process == processes.end() || message.number <= process->known_number) continue;
      // Who is cut off may still get what was under way.
      process->known_number = message.number;
      process->known_bytes = message.bytes;
    }
  }

  void step(Process& process) {
    process.uses = process.known_bytes;
    ++process.steps;
    process.next_step = now_ + pick(1, process.step_ticks);
    check();
    if (process.silent_since >= 0) return;
    // Said again at each step: the first one may have been lost.
    if (process.known_number > 0) send({0, false, process.id, process.known_number, 0});
    const auto& lengths = traces()[process.trace];
    const std::int64_t peak =
        process.static_bytes +
        process.bytes_per_token * lengths[process.position++ % lengths.size()];
    const auto fixed = fixed_needs.find(process.id);
    groups.need(process.id, Bytes(fixed == fixed_needs.end() ? peak : fixed->second));
    check();
  }

  // New orders at once; those that stay open again after a while.
  void send_orders() {
    for (const BudgetOrder& order : groups.take_orders()) {
      Sent& sent = sent_[order.run];
      if (sent.number == order.number && now_ < sent.at + 10) continue;
      if (sent.number != order.number) ++orders_sent_;
      sent = {order.number, now_};
      send({0, true, order.run, order.number, order.budget_bytes.count()});
    }
  }

  void churn() {
    const auto what = pick(0, 4);
    if (what >= 2 || processes.empty()) {
      if (processes.size() < 50) start();
      return;
    }
    Process& process = processes[static_cast<std::size_t>(pick(0, std::ssize(processes) - 1))];
    if (process.silent_since >= 0) return;
    if (what == 0) {
      end(process.id);
      return;
    }
    process.silent_since = now_;
    process.alive = chance(0.5);
    groups.lost(process.id);
  }

  void end(std::string id) {  // a copy: it may be that of a process
    std::erase_if(processes, [&id](const Process& one) { return one.id == id; });
    groups.leave(id);
  }

  // After its timeout the dead are known to be dead, and who was cut off registers again.
  void bury() {
    std::vector<std::string> dead;
    for (Process& process : processes) {
      if (process.silent_since < 0 || now_ < process.silent_since + 30) continue;
      if (!process.alive) {
        dead.push_back(process.id);
        continue;
      }
      process.silent_since = -1;
      const auto back = groups.join(
          {"gpu", process.id, Bytes(total_ / 10), Bytes(process.floor), Bytes(process.uses)});
      ASSERT_TRUE(back.has_value()) << back.error().message;
    }
    for (const std::string& id : dead) end(id);
  }

  struct Sent {
    std::uint64_t number = 0;
    std::int64_t at = 0;
  };

  std::mt19937_64 random_;
  std::int64_t total_;
  std::int64_t ceiling_;  // of the total in force
  Conditions conditions_;
  std::int64_t now_ = 0;
  std::int64_t started_ = 0;
  std::int64_t orders_sent_ = 0;
  std::map<std::string, Sent> sent_;
  std::priority_queue<Message, std::vector<Message>, std::greater<>> messages_;
};

class GroupSeeds : public testing::TestWithParam<std::uint64_t> {
 protected:
  std::mt19937_64 random{GetParam()};
  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  }
};

TEST_P(GroupSeeds, SumNeverExceedsTheTotalWhateverGetsLostOrDies) {
  Simulation simulation(GetParam(), pick(2, 50), pick(1000, 100000) * kMiB,
                        {.max_delay = pick(0, 20),
                         .lost = 0.1 * static_cast<double>(pick(0, 4)),
                         .doubled = 0.3,
                         .churn = 0.05,
                         .total_changes = GetParam() % 2 == 0 ? 0.02 : 0});
  simulation.run(1500);
  EXPECT_GT(simulation.orders_sent(), 0);
}

// Every run has what it has a right to and can use, or is about to be told.
void expect_rights(const Simulation& simulation, const std::string& when) {
  const GroupView now = simulation.view();
  for (const GroupMember& run : now.runs) {
    EXPECT_GE(run.budget_bytes, std::min(run.share_bytes, run.need_bytes)) << run.id << when;
  }
}

TEST_P(GroupSeeds, LenderHasItsShareBackWithinAStepOfEveryBorrower) {
  Simulation simulation(GetParam(), pick(2, 50), 20000 * kMiB, {});
  const auto lender_at = static_cast<std::size_t>(pick(0, std::ssize(simulation.processes) - 1));
  const std::string lender = simulation.processes[lender_at].id;
  for (const Process& process : simulation.processes) {
    simulation.fixed_needs[process.id] = process.id == lender ? 300 * kMiB : 15000 * kMiB;
  }
  simulation.run(600);
  expect_rights(simulation, " before");
  simulation.fixed_needs[lender] = 15000 * kMiB;
  // Its own step, that says so; one of each borrower; one of its own. A tick for each message.
  simulation.run(3 * simulation.longest_step() + 4);
  expect_rights(simulation, " after");
}

TEST_P(GroupSeeds, WhatCanBeLentIsLent) {
  Simulation simulation(GetParam(), pick(2, 50), 20000 * kMiB, {.max_delay = 2});
  for (const Process& process : simulation.processes) {
    const bool wants = simulation.fixed_needs.empty() || pick(0, 2) == 0;
    simulation.fixed_needs[process.id] =
        process.floor + (wants ? pick(1000, 9000) : pick(1, 300)) * kMiB;
  }
  simulation.run(1000);
  const GroupView now = simulation.view();
  std::int64_t lendable = now.total_bytes->count();
  std::int64_t wanted = 0;
  std::int64_t lent = 0;
  for (const GroupMember& run : now.runs) {
    lendable -= std::min(run.share_bytes, std::max(run.need_bytes, run.floor_bytes)).count();
    if (run.need_bytes <= run.share_bytes) continue;
    wanted += (run.need_bytes - run.share_bytes).count();
    lent += (std::min(run.budget_bytes, run.need_bytes) - run.share_bytes).count();
  }
  EXPECT_GE(static_cast<double>(lent), 0.95 * static_cast<double>(std::min(lendable, wanted)));
  expect_rights(simulation, "");
  // And then there is rest.
  const std::int64_t orders = simulation.orders_sent();
  simulation.run(500);
  EXPECT_EQ(simulation.orders_sent(), orders);
}

TEST_P(GroupSeeds, BudgetsDoNotFlapWithEveryBatch) {
  Simulation simulation(GetParam(), 10, 20000 * kMiB, {.max_delay = 2});
  simulation.run(3000);
  std::int64_t steps = 0;
  for (const Process& process : simulation.processes) {
    steps += process.steps;
  }
  EXPECT_LT(simulation.orders_sent(), steps / 10);
}

INSTANTIATE_TEST_SUITE_P(Random, GroupSeeds, testing::Range<std::uint64_t>(1, 25));

}  // namespace
}  // namespace pudica::daemon
