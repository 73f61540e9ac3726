// Goal: each rule's score is its definition. Method: random small graphs in which storages come and
// go; the definition is worked out again from the whole history after each event.
#include "torch/eviction_graph.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

using Random = std::mt19937_64;

constexpr std::uint64_t kSeed = 20260726;

EvictionNodes chain_of(const std::vector<double>& seconds) {
  std::vector<EvictionNode> nodes;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    EvictionNode node{seconds[i], {}};
    if (i > 0) node.inputs = {static_cast<std::uint32_t>(i - 1)};
    nodes.push_back(node);
  }
  return std::make_shared<const std::vector<EvictionNode>>(std::move(nodes));
}

double score_of(const EvictionGraph& graph, EvictionRule rule, std::size_t node,
                std::int64_t bytes = 100, double now = 3) {
  Random random(1);
  return graph.score(rule, node, bytes, now, random);
}

// The definitions, from sets and the history alone.
class Definition {
 public:
  explicit Definition(EvictionNodes nodes, double now)
      : nodes_(std::move(nodes)),
        last_(nodes_->size(), now),
        recomputes_(nodes_->size(), 0),
        component_(nodes_->size(), kNone) {}

  void evict(std::size_t node) {
    evicted_.insert(node);
    // A component of its own, then everything that touches it becomes one.
    const std::size_t own = sums_.size();
    sums_.push_back((*nodes_)[node].seconds);
    component_[node] = own;
    for (std::size_t other = 0; other < nodes_->size(); ++other) {
      if (other == node || !evicted_.contains(other) || !touch(node, other)) continue;
      if (component_[other] == component_[node]) continue;
      const std::size_t from = component_[other];
      sums_[component_[node]] += sums_[from];
      std::ranges::replace(component_, from, component_[node]);
    }
  }
  void make_again(std::size_t node, double now) {
    evicted_.erase(node);
    sums_[component_[node]] -= (*nodes_)[node].seconds;
    component_[node] = kNone;
    ++recomputes_[node];
    last_[node] = now;
    for (const std::uint32_t input : (*nodes_)[node].inputs) last_[input] = now;
  }
  void read(std::size_t node, double now) { last_[node] = now; }

  [[nodiscard]] double score(EvictionRule rule, std::size_t node, double bytes, double now) const {
    const double own = (*nodes_)[node].seconds;
    const double stale = now - last_[node];
    const double age = stale > 0 ? bytes * stale : 0;
    switch (rule) {
      case EvictionRule::kDtr:
        return over(own + sum(reached(node, true)) + sum(reached(node, false)), age);
      case EvictionRule::kDtrEq:
        return over(own + merged(node), age);
      case EvictionRule::kLocal:
        return over(own, age);
      case EvictionRule::kLru:
        return last_[node];
      case EvictionRule::kSize:
        return 1 / bytes;
      case EvictionRule::kMsps:
        return (own + sum(reached(node, true))) / bytes;
      case EvictionRule::kMegEngine: {
        double inputs = 0;
        for (const std::uint32_t input : (*nodes_)[node].inputs) {
          if (!evicted_.contains(input)) continue;
          inputs += std::max(sums_[component_[input]], (*nodes_)[input].seconds);
        }
        return (inputs + 1e-3) * std::pow(1.0001, recomputes_[node]) /
               (bytes / (1 << 20) * (stale + 1e-3));
      }
      case EvictionRule::kRandom:
        break;
    }
    return 0;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  static double over(double seconds, double age) {
    return age > 0 ? seconds / age : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] bool reads(std::size_t reader, std::size_t input) const {
    return std::ranges::count((*nodes_)[reader].inputs, input) > 0;
  }
  [[nodiscard]] bool touch(std::size_t a, std::size_t b) const {
    return reads(a, b) || reads(b, a);
  }

  // By a walk of evicted ones: a fixed point, found by trying all again and again.
  [[nodiscard]] std::set<std::size_t> reached(std::size_t node, bool up) const {
    std::set<std::size_t> found;
    for (bool grows = true; grows;) {
      grows = false;
      for (const std::size_t other : evicted_) {
        const auto next_to = [&](std::size_t here) {
          return up ? reads(here, other) : reads(other, here);
        };
        const bool near = next_to(node) || std::ranges::any_of(found, next_to);
        grows |= near && found.insert(other).second;
      }
    }
    return found;
  }
  [[nodiscard]] double sum(const std::set<std::size_t>& of) const {
    double seconds = 0;
    for (const std::size_t node : of) seconds += (*nodes_)[node].seconds;
    return seconds;
  }
  [[nodiscard]] double merged(std::size_t node) const {
    std::set<std::size_t> components;
    for (const std::size_t other : evicted_) {
      if (touch(node, other)) components.insert(component_[other]);
    }
    double seconds = 0;
    for (const std::size_t component : components) seconds += sums_[component];
    return seconds;
  }

  EvictionNodes nodes_;
  std::vector<double> last_;
  std::vector<int> recomputes_;
  std::set<std::size_t> evicted_;
  std::vector<std::size_t> component_;  // of evicted ones
  std::vector<double> sums_;
};

TEST(EvictionGraph, ScoresAreTheDefinitions) {
  Random random(kSeed);
  const auto pick = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int n = 0; n < 200; ++n) {
    std::vector<EvictionNode> nodes(static_cast<std::size_t>(pick(1, 9)));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      nodes[i].seconds = pick(1, 1000) * 1e-3;
      for (std::uint32_t j = 0; j < i; ++j) {
        if (pick(0, 2) == 0) nodes[i].inputs.push_back(j);
      }
    }
    const auto shared = std::make_shared<const std::vector<EvictionNode>>(nodes);
    EvictionGraph graph(shared, 0);
    Definition definition(shared, 0);
    for (int event = 1; event <= 30; ++event) {
      const auto node = static_cast<std::size_t>(pick(0, static_cast<int>(nodes.size()) - 1));
      const double now = event;
      if (graph.is_evicted(node)) {
        graph.make_again(node, now);
        definition.make_again(node, now);
      } else if (pick(0, 2) > 0) {
        graph.evict(node);
        definition.evict(node);
      } else {
        graph.read(node, now);
        definition.read(node, now);
      }
      const double later = now + 0.5;
      for (std::size_t one = 0; one < nodes.size(); ++one) {
        if (graph.is_evicted(one)) continue;
        for (const EvictionRule rule :
             {EvictionRule::kDtr, EvictionRule::kDtrEq, EvictionRule::kLocal, EvictionRule::kLru,
              EvictionRule::kSize, EvictionRule::kMsps, EvictionRule::kMegEngine}) {
          const std::int64_t bytes = 1000 * (1 + static_cast<std::int64_t>(one));
          const double expected = definition.score(rule, one, static_cast<double>(bytes), later);
          ASSERT_NEAR(score_of(graph, rule, one, bytes, later), expected, 1e-9 * std::abs(expected))
              << "seed " << kSeed << " graph " << n << " event " << event << " node " << one
              << " rule " << static_cast<int>(rule);
        }
      }
    }
  }
}

// 1 and 2 are gone: 3 would take them with it, and 0 is what they are made from.
TEST(EvictionGraph, NeighboursThatWentCount) {
  EvictionGraph graph(chain_of({1, 2, 4, 8}), 0);
  graph.evict(1);
  graph.evict(2);
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kDtr, 3), (8 + 2 + 4) / (100 * 3.0));
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kDtr, 0), (1 + 2 + 4) / (100 * 3.0));
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kMsps, 0), 1 / 100.0) << "it has no ancestors";
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kLocal, 3), 8 / (100 * 3.0));
}

TEST(EvictionGraph, WhatWasMergedIsNeverSplit) {
  EvictionGraph graph(chain_of({1, 2, 4, 8, 16}), 0);
  for (const std::size_t node : {1U, 2U, 3U}) graph.evict(node);
  graph.make_again(2, 1);
  // 1 and 3 are neighbours no more; DTR knows, its approximation does not.
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kDtr, 0), (1 + 2) / (100 * 3.0));
  EXPECT_DOUBLE_EQ(score_of(graph, EvictionRule::kDtrEq, 0), (1 + 2 + 8) / (100 * 3.0));
}

TEST(EvictionGraph, WhatWasJustReadOrHasNoBytesGoesLast) {
  EvictionGraph graph(chain_of({1, 2}), 0);
  graph.read(0, 3);
  for (const EvictionRule rule : {EvictionRule::kDtr, EvictionRule::kDtrEq, EvictionRule::kLocal}) {
    EXPECT_TRUE(std::isinf(score_of(graph, rule, 0)));
    EXPECT_TRUE(std::isinf(score_of(graph, rule, 1, 0)));
  }
  EXPECT_TRUE(std::isinf(score_of(graph, EvictionRule::kSize, 1, 0)));
}

TEST(EvictionGraph, RandomScoresFollowTheSeed) {
  const EvictionGraph graph(chain_of({1, 2}), 0);
  const auto draws = [&graph](std::uint64_t seed) {
    Random random(seed);
    std::vector<double> scores;
    for (int i = 0; i < 8; ++i) {
      scores.push_back(graph.score(EvictionRule::kRandom, 0, 100, 1, random));
    }
    return scores;
  };
  EXPECT_EQ(draws(7), draws(7));
  EXPECT_NE(draws(7), draws(8));
}

}  // namespace
}  // namespace pudica::hooks
