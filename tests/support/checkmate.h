// Checkmate (Jain et al., MLSys 2020): the least cost of running a graph within a memory budget,
// when anything may be recomputed at any time. As a mixed-integer program, for small graphs.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "support/integer_program.h"

namespace pudica::testing {

// Nodes in topological order, of unit cost and size; edge (from, to): `to` reads `from`.
struct UnitGraph {
  int nodes = 0;
  std::vector<std::pair<int, int>> edges;
};

// `layers` forward nodes, the loss, and a backward node for each, which reads its forward node.
inline UnitGraph unit_chain(int layers) {
  UnitGraph graph{2 * layers + 1, {}};
  for (int i = 1; i < graph.nodes; ++i) graph.edges.emplace_back(i - 1, i);
  for (int i = 0; i + 1 < layers; ++i) graph.edges.emplace_back(i, 2 * layers - i);
  graph.edges.emplace_back(layers - 1, layers + 1);
  return graph;
}

// In stage t node t is computed for the first time. R[t][i]: node i is computed in stage t;
// S[t][i]: it is held from stage t - 1 into t; FREE[t][i][k]: it is freed in stage t right after k
// is computed. FREE is bounded by each of its factors (R of k, not held on, no later user), which
// is the tight linear form: FREE <= R keeps what is not there from being freed.
class Checkmate {
 public:
  Checkmate(const UnitGraph& graph, std::int64_t budget, IntegerProgram::Kind kind)
      : graph_(graph), budget_(budget), kind_(kind) {
    make_variables();
    for (int t = 0; t < graph_.nodes; ++t) {
      add_order(t);
      add_memory(t);
    }
  }

  [[nodiscard]] std::optional<double> solve() const { return program_.solve(); }

 private:
  using Terms = std::vector<IntegerProgram::Term>;

  void make_variables() {
    const auto square = std::vector<std::vector<int>>(static_cast<std::size_t>(graph_.nodes),
                                                      std::vector<int>(graph_.nodes, -1));
    computed_ = held_ = square;
    for (int t = 0; t < graph_.nodes; ++t) {
      for (int i = 0; i <= t; ++i) {
        computed_[t][i] = program_.add_variable(1, kind_);
        if (i < t) held_[t][i] = program_.add_variable(0, kind_);
      }
      program_.fix(computed_[t][t], 1);
    }
  }

  // What is read is there; what is held was there.
  void add_order(int t) {
    for (const auto& [from, to] : graph_.edges) {
      if (to > t) continue;
      Terms terms{{1, computed_[t][to]}, {-1, computed_[t][from]}};
      if (held_[t][from] >= 0) terms.push_back({-1, held_[t][from]});
      program_.add_row(std::move(terms), 0);
    }
    for (int i = 0; i < t; ++i) {
      Terms terms{{1, held_[t][i]}, {-1, computed_[t - 1][i]}};
      if (held_[t - 1][i] >= 0) terms.push_back({-1, held_[t - 1][i]});
      program_.add_row(std::move(terms), 0);
    }
  }

  int add_free(int t, int node, int after) {
    const int freed = program_.add_variable(0, IntegerProgram::Kind::kContinuous);
    program_.add_row({{1, freed}, {-1, computed_[t][after]}}, 0);
    if (t + 1 < graph_.nodes) program_.add_row({{1, freed}, {1, held_[t + 1][node]}}, 1);
    for (const auto& [from, to] : graph_.edges) {
      if (from == node && to > after && to <= t) {
        program_.add_row({{1, freed}, {1, computed_[t][to]}}, 1);
      }
    }
    return freed;
  }

  // Live after each node of the stage: held, plus computed, less freed so far.
  void add_memory(int t) {
    Terms live;
    for (int i = 0; i < t; ++i) live.push_back({1, held_[t][i]});
    for (int k = 0; k <= t; ++k) {
      live.push_back({1, computed_[t][k]});
      program_.add_row(live, budget_);
      for (const auto& [from, to] : graph_.edges) {
        if (to == k) live.push_back({-1, add_free(t, from, k)});
      }
    }
  }

  UnitGraph graph_;
  std::int64_t budget_;
  IntegerProgram::Kind kind_;
  IntegerProgram program_;
  std::vector<std::vector<int>> computed_;  // [t][i], -1: not a variable
  std::vector<std::vector<int>> held_;
};

}  // namespace pudica::testing
