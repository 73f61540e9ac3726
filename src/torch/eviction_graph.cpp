#include "torch/eviction_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace pudica::hooks {

EvictionGraph::EvictionGraph(EvictionNodes nodes, double now)
    : nodes_(std::move(nodes)),
      readers_(nodes_->size()),
      evicted_(nodes_->size(), false),
      last_read_(nodes_->size(), now),
      recomputes_(nodes_->size(), 0),
      merged_of_(nodes_->size(), kNone) {
  for (std::size_t node = 0; node < nodes_->size(); ++node) {
    for (const std::uint32_t input : inputs_of(node)) {
      readers_[input].push_back(static_cast<std::uint32_t>(node));
    }
  }
}

std::size_t EvictionGraph::root_of(std::size_t merged) const {
  std::size_t root = merged;
  while (merged_[root].parent != root) root = merged_[root].parent;
  while (merged_[merged].parent != root) {
    merged = std::exchange(merged_[merged].parent, root);
  }
  return root;
}

void EvictionGraph::evict(std::size_t node) {
  if (evicted_[node]) return;
  evicted_[node] = true;
  const std::size_t own = merged_.size();
  merged_.push_back({own, (*nodes_)[node].seconds});
  merged_of_[node] = own;
  const auto merge = [&](std::uint32_t neighbour) {
    if (!evicted_[neighbour]) return;
    const std::size_t other = root_of(merged_of_[neighbour]);
    const std::size_t root = root_of(own);
    if (other == root) return;
    merged_[root].parent = other;
    merged_[other].seconds += merged_[root].seconds;
  };
  for (const std::uint32_t input : inputs_of(node)) merge(input);
  for (const std::uint32_t reader : readers_[node]) merge(reader);
}

// Which reads its inputs.
void EvictionGraph::make_again(std::size_t node, double now) {
  if (!evicted_[node]) return;
  evicted_[node] = false;
  merged_[root_of(merged_of_[node])].seconds -= (*nodes_)[node].seconds;
  merged_of_[node] = kNone;
  ++recomputes_[node];
  last_read_[node] = now;
  for (const std::uint32_t input : inputs_of(node)) last_read_[input] = now;
}

double EvictionGraph::sum_of_evicted(std::size_t node, bool down) const {
  std::vector<bool> seen(size(), false);
  std::vector<std::size_t> open{node};
  double seconds = 0;
  while (!open.empty()) {
    const std::size_t here = open.back();
    open.pop_back();
    for (const std::uint32_t next : down ? readers_[here] : inputs_of(here)) {
      if (!evicted_[next] || seen[next]) continue;
      seen[next] = true;
      seconds += (*nodes_)[next].seconds;
      open.push_back(next);
    }
  }
  return seconds;
}

double EvictionGraph::sum_of_merged(std::size_t node) const {
  std::set<std::size_t> roots;
  const auto add = [&](std::uint32_t neighbour) {
    if (evicted_[neighbour]) roots.insert(root_of(merged_of_[neighbour]));
  };
  for (const std::uint32_t input : inputs_of(node)) add(input);
  for (const std::uint32_t reader : readers_[node]) add(reader);
  double seconds = 0;
  for (const std::size_t root : roots) seconds += merged_[root].seconds;
  return seconds;
}

double EvictionGraph::dearest_inputs(std::size_t node) const {
  double seconds = 0;
  for (const std::uint32_t input : inputs_of(node)) {
    if (!evicted_[input]) continue;
    seconds += std::max(merged_[root_of(merged_of_[input])].seconds, (*nodes_)[input].seconds);
  }
  return seconds;
}

double EvictionGraph::score(EvictionRule rule, std::size_t node, std::int64_t bytes, double now,
                            std::mt19937_64& random) const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const auto size_bytes = static_cast<double>(bytes);
  const double stale = now - last_read_[node];
  const double own = (*nodes_)[node].seconds;
  const auto by_age = [&](double seconds) {
    return bytes <= 0 || stale <= 0 ? kNever : seconds / (size_bytes * stale);
  };
  switch (rule) {
    case EvictionRule::kDtr:
      return by_age(own + sum_of_evicted(node, false) + sum_of_evicted(node, true));
    case EvictionRule::kDtrEq:
      return by_age(own + sum_of_merged(node));
    case EvictionRule::kLocal:
      return by_age(own);
    case EvictionRule::kLru:
      return last_read_[node];
    case EvictionRule::kSize:
      return bytes <= 0 ? kNever : 1 / size_bytes;
    case EvictionRule::kMsps:
      return bytes <= 0 ? kNever : (own + sum_of_evicted(node, false)) / size_bytes;
    case EvictionRule::kRandom:
      return std::uniform_real_distribution<double>(0, 1)(random);
    case EvictionRule::kMegEngine:
      return bytes <= 0 ? kNever
                        : (dearest_inputs(node) + 1e-3) * std::pow(1.0001, recomputes_[node]) /
                              (size_bytes / kMebibyte * (stale + 1e-3));
  }
  return kNever;
}

}  // namespace pudica::hooks
