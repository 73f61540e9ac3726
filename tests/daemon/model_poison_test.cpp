// States that are not of the run's model: no run is worse off for having been given one.
#include <array>
#include <charconv>
#include <random>
#include <sstream>

#include "controller/learned_state.h"
#include "daemon/daemon_parts.h"
#include "daemon/model_support.h"
#include "predictor/predictor_file.h"

namespace pudica::daemon::testing {
namespace {

constexpr std::uint64_t kSeed = 24;

// The learned state in two parts: what stands before the predictor's own, and that without its
// checksum.
std::pair<std::string, std::string> parts_of(const std::string& state) {
  const std::string body = *open_state(state, kFingerprint);
  const std::size_t predictor = body.rfind("pudica-predictor");
  return {body.substr(0, predictor), body.substr(predictor, body.rfind("checksum ") - predictor)};
}

std::string joined(const std::string& head, const std::string& predictor) {
  return seal_state(head + predictor::with_checksum(predictor), kFingerprint);
}

// A state with every sample's bytes changed by `change(segment, bytes)`, whose logs go along: what
// a checksum cannot tell.
template <typename Change>
std::string forged(const std::string& state, const Change& change) {
  const auto [head, predictor] = parts_of(state);
  std::istringstream in(predictor);
  std::ostringstream out;
  int segment = -1;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("segment ")) ++segment;
    if (!line.starts_with("sample ")) {
      out << line << '\n';
      continue;
    }
    std::istringstream words(line);
    std::string word;
    std::vector<std::int64_t> numbers;
    words >> word;
    for (std::int64_t number = 0; words >> number;) numbers.push_back(number);
    // Two dimensions, net and peak, whether there is a log, its length, the log.
    std::int64_t live = 0;
    std::int64_t peak = 0;
    for (std::size_t i = 6; i < numbers.size(); ++i) {
      numbers[i] = change(segment, numbers[i]);
      peak = std::max(peak, live += numbers[i]);
    }
    const bool has_log = numbers.size() > 6;
    numbers[2] = has_log ? live : change(segment, numbers[2]);
    numbers[3] = has_log ? peak : change(segment, numbers[3]);
    out << word;
    for (const std::int64_t number : numbers) out << ' ' << number;
    out << '\n';
  }
  return joined(head, out.str());
}

// A random edit of a state under valid checksums.
std::string damaged(const std::string& state, std::mt19937_64& random) {
  auto [head, tail] = parts_of(state);
  for (std::uint64_t edits = random() % 4 + 1; edits > 0; --edits) {
    std::string& text = random() % 4 == 0 ? head : tail;
    const std::size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text[at] = static_cast<char>('0' + random() % 10);
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1U << (random() % 7)));
        break;
      default:
        text.insert(at, std::to_string(random() % 1000));
        break;
    }
  }
  return joined(head, tail);
}

std::string taught(const SyntheticSpec& spec, double share) {
  Process process(spec);
  const Bytes budget = process.budget_at({8, 240}, share);
  for (const std::int64_t length : {64, 96, 240, 160, 200, 72, 120, 232}) {
    process.step({4 + length % 3, length}, budget);
  }
  return process.state();
}

std::string random_state(const SyntheticSpec& truth, std::mt19937_64& random) {
  SyntheticSpec other = truth;
  const double share = 0.1 * static_cast<double>(random() % 8);
  switch (random() % 6) {
    case 0: {  // an honest one of another model
      other.width = 8 + static_cast<std::int64_t>(random() % 200);
      return taught(other, share);
    }
    case 1: {
      other.heads = 4;
      other.encoder_layers = truth.encoder_layers + static_cast<int>(random() % 3) - 1;
      return taught(other, share);
    }
    case 2:
      return damaged(taught(truth, share), random);
    case 3: {  // all bytes by one factor: a tenth, none, of the other sign, a billion
      constexpr std::array<double, 7> kFactors{0.1, 0, -1, 0.5, 2, 10, 1e9};
      const double factor = kFactors.at(random() % kFactors.size());
      return forged(taught(truth, share), [factor](int, std::int64_t bytes) {
        return static_cast<std::int64_t>(factor * static_cast<double>(bytes));
      });
    }
    default: {  // those of some segments
      std::vector<double> factors(64, 1.0);
      for (double& factor : factors) {
        if (random() % 3 == 0) factor = 0.02 * static_cast<double>(random() % 200);
      }
      return forged(taught(truth, share), [&factors](int segment, std::int64_t bytes) {
        const auto factor = factors.at(static_cast<std::size_t>(segment) % factors.size());
        return static_cast<std::int64_t>(factor * static_cast<double>(bytes));
      });
    }
  }
}

struct Course {
  std::int64_t overruns = 0;
  Bytes most_over{0};
};

Course course(Process& process, double share) {
  Course out;
  const Bytes budget = process.budget_at({8, 240}, share);
  for (const std::int64_t length : {240, 64, 240, 200, 96, 232, 240, 72, 160, 240, 236, 120}) {
    const StepRecord record = process.step({8, length}, budget);
    out.overruns += record.overrun ? 1 : 0;
    out.most_over = std::max(out.most_over, record.measured_bytes - budget);
  }
  return out;
}

TEST(ModelPoison, NoRunIsWorseOffForAStateFromThePool) {
  int taken = 0;
  for (std::uint64_t seed = kSeed; seed < kSeed + 1000; ++seed) {
    std::mt19937_64 random(seed);
    SyntheticSpec truth;
    truth.menu_steps = static_cast<int>(random() % 4);
    truth.heads = random() % 2 == 0 ? 0 : 2;
    const double share = 0.02 * static_cast<double>(random() % 40);
    ModelPool pool;
    (void)pool.adopt(kFingerprint, random_state(truth, random), "poison").has_value();
    const auto state = pool.state(kFingerprint);
    if (!state) continue;
    Process with(truth);
    if (!with.controller().restore(*state, kFingerprint)) continue;
    ++taken;
    Process without(truth);
    const Course poisoned = course(with, share);
    const Course cold = course(without, share);
    EXPECT_LE(poisoned.overruns, cold.overruns) << "seed " << seed << " share " << share;
  }
  EXPECT_GT(taken, 300);
}

// A tenth of the bytes, and "5,000 steps recorded".
std::string tenth(const std::string& state) {
  const std::string scaled = forged(state, [](int, std::int64_t bytes) { return bytes / 10; });
  std::string body = *open_state(scaled, kFingerprint);
  const std::size_t recorded = body.find("recorded ");
  body.replace(recorded, body.find('\n', recorded) - recorded, "recorded 5000");
  return seal_state(body, kFingerprint);
}

TEST(ModelPoison, AStateThatContradictsWhatIsKnownDoesNotTakeItsPlace) {
  const std::string clean = taught({}, 0.4);
  ModelPool pool;
  ASSERT_TRUE(pool.adopt(kFingerprint, clean, "a"));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(*pool.adopt(kFingerprint, tenth(clean), "forger"));
  EXPECT_EQ(*pool.state(kFingerprint), clean);
  // Its own run's word clears the doubt.
  EXPECT_FALSE(*pool.adopt(kFingerprint, clean, "b"));
  EXPECT_FALSE(*pool.adopt(kFingerprint, tenth(clean), "another"));
  EXPECT_EQ(*pool.state(kFingerprint), clean);
}

TEST(ModelPoison, WhatTwoRunsContradictIsDroppedAndNotTakenAgain) {
  const std::string clean = taught({}, 0.4);
  const std::string poison = tenth(clean);
  ModelPool pool;
  ASSERT_TRUE(pool.adopt(kFingerprint, poison, "forger"));
  const std::uint64_t version = pool.version(kFingerprint);
  // Runs that were given it drop it, and send what they learned instead.
  for (const char* run : {"a", "b"}) {
    EXPECT_EQ(*pool.state(kFingerprint), poison);
    Process process;
    ASSERT_TRUE(process.controller().restore(poison, kFingerprint));
    EXPECT_EQ(course(process, 0.3).overruns, 0);
    EXPECT_EQ(process.controller().snapshot().counters.refused_states, 1);
    (void)pool.adopt(kFingerprint, process.state(), run).has_value();
  }
  EXPECT_NE(*pool.state(kFingerprint), poison);
  EXPECT_GT(pool.version(kFingerprint), version);
  EXPECT_EQ(pool.stats(kFingerprint)->taught_by, std::vector<std::string>{"b"});
  const auto again = pool.adopt(kFingerprint, poison, "forger");
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("two runs"), std::string::npos) << again.error().message;
  Process next;
  ASSERT_TRUE(next.controller().restore(*pool.state(kFingerprint), kFingerprint));
  (void)course(next, 0.3);
  EXPECT_EQ(next.controller().snapshot().counters.refused_states, 0);
  EXPECT_EQ(next.learning_steps(), 0);
}

// The models of a daemon whose database is at `path`.
struct ModelKeeper {
  explicit ModelKeeper(const std::string& path)
      : registry(time.clock(), {}), archive(Archive::open({.path = path}).value()) {}

  void adopt(const std::string& run, const std::string& state) {
    RunDescription about = described(run);
    about.fingerprint = kFingerprint;
    RunSummary summary;
    summary.id = run;
    summary.about = std::make_shared<const RunDescription>(about);
    models.adopt(summary, state);
    models.tick();
  }

  ManualTime time;
  RunRegistry registry;
  std::unique_ptr<Archive> archive;
  RunModels models{registry, *archive};
};

TEST(ModelPoison, WhatWasDroppedIsNotTakenAgainByTheDaemonAfterThisOne) {
  const ScratchFolder folder;
  const std::string poison = tenth(taught({}, 0.4));
  std::string known;
  {
    ModelKeeper daemon(folder.file("kept.db"));
    daemon.adopt("forger", poison);
    for (const char* run : {"a", "b"}) {
      Process process;
      (void)course(process, 0.3);
      daemon.adopt(run, process.state());
    }
    known = *daemon.models.state(kFingerprint);
    ASSERT_NE(known, poison);
  }
  for (int restart = 0; restart < 2; ++restart) {
    ModelKeeper daemon(folder.file("kept.db"));
    ASSERT_TRUE(*daemon.models.state(kFingerprint) == known) << "restart " << restart;
    for (const char* run : {"c", "d"}) daemon.adopt(run, poison);
    EXPECT_TRUE(*daemon.models.state(kFingerprint) == known) << "restart " << restart;
  }
}

}  // namespace
}  // namespace pudica::daemon::testing
