#include "planner/candidates.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "planner/saturating.h"

namespace pudica::planner {
namespace {

constexpr std::size_t kMostModes = 256;  // what a choice's uint8 can name
// Thirteen days: sums over layers stay in int64 and single times are exact in double.
constexpr std::int64_t kMostTimeNs = std::int64_t{1} << 50;

bool before(const Candidate& left, const Candidate& right) {
  return std::tie(left.time_ns, left.kept_bytes, left.peak_bytes, left.source) <
         std::tie(right.time_ns, right.kept_bytes, right.peak_bytes, right.source);
}

Result<void> check_layer(const std::vector<ChainMode>& layer, std::size_t index) {
  if (layer.empty() || layer.size() > kMostModes) {
    return invalid_argument("chain: layer " + std::to_string(index) + " has " +
                            std::to_string(layer.size()) + " modes; expected 1 to 256");
  }
  for (const ChainMode& mode : layer) {
    if (mode.time_ns < 0 || mode.time_ns > kMostTimeNs) {
      return invalid_argument("chain: layer " + std::to_string(index) + " has a time of " +
                              std::to_string(mode.time_ns) + " ns; expected 0 to 2^50");
    }
  }
  return {};
}

}  // namespace

Result<void> Candidates::collect(const Chain& chain) {
  modes_.clear();
  first_.assign(1, 0);
  tail_bytes_ = chain.tail_bytes;
  fastest_ns_ = 0;
  slowest_ns_ = 0;
  for (std::size_t i = 0; i < chain.layers.size(); ++i) {
    if (auto checked = check_layer(chain.layers[i], i); !checked) return checked;
    collect_layer(chain.layers[i]);
  }
  compute_floors();
  return {};
}

// In ascending (time, kept, peak) order a mode can only be beaten by one before it.
void Candidates::collect_layer(const std::vector<ChainMode>& layer) {
  sorted_.clear();
  for (std::size_t m = 0; m < layer.size(); ++m) {
    sorted_.push_back(
        {layer[m].kept_bytes, layer[m].peak_bytes, layer[m].time_ns, static_cast<std::uint8_t>(m)});
  }
  if (!std::ranges::is_sorted(sorted_, before)) std::ranges::sort(sorted_, before);
  const std::size_t start = modes_.size();
  const std::int64_t fastest_ns = sorted_.front().time_ns;
  for (Candidate candidate : sorted_) {
    bool beaten = false;
    for (std::size_t n = start; n < modes_.size() && !beaten; ++n) {
      beaten = modes_[n].kept_bytes <= candidate.kept_bytes &&
               modes_[n].peak_bytes <= candidate.peak_bytes;
    }
    if (beaten) continue;
    candidate.time_ns -= fastest_ns;
    modes_.push_back(candidate);
  }
  first_.push_back(modes_.size());
  fastest_ns_ = saturating_add(fastest_ns_, fastest_ns);
  slowest_ns_ = saturating_add(slowest_ns_, modes_.back().time_ns);
}

// max(W, s + R) grows with R, so the least R_i comes from the least R_{i+1}.
void Candidates::compute_floors() {
  floors_.assign(layers() + 1, tail_bytes_);
  for (std::size_t i = layers(); i-- > 0;) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Candidate& mode : of(i)) {
      least = std::min(least,
                       std::max(mode.peak_bytes, saturating_add(mode.kept_bytes, floors_[i + 1])));
    }
    floors_[i] = least;
  }
}

Totals Candidates::totals(const Choice& choice) const {
  Totals totals{.peak_bytes = tail_bytes_, .time_ns = 0};
  for (std::size_t i = layers(); i-- > 0;) {
    const Candidate& mode = of(i)[choice[i]];
    totals.peak_bytes =
        std::max(mode.peak_bytes, saturating_add(mode.kept_bytes, totals.peak_bytes));
    totals.time_ns = saturating_add(totals.time_ns, mode.time_ns);
  }
  return totals;
}

std::uint8_t Candidates::candidate_for(std::size_t layer, const ChainMode& mode) const {
  // One candidate is the mode or beats it in all three; candidates are in ascending time, so the
  // first that keeps and peaks no more is the fastest of those.
  const auto modes = of(layer);
  for (std::size_t n = 0; n < modes.size(); ++n) {
    if (modes[n].kept_bytes <= mode.kept_bytes && modes[n].peak_bytes <= mode.peak_bytes) {
      return static_cast<std::uint8_t>(n);
    }
  }
  throw BugError("candidates: layer " + std::to_string(layer) + " has nothing as good as the mode");
}

}  // namespace pudica::planner
