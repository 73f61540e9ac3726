#include "policy/mimose_scheduler.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace pudica {
namespace {

constexpr double kBucketFraction = 0.9;

// Candidates by estimate, descending; equal ones in execution order.
std::vector<MimoseCandidate> by_size_descending(std::span<const MimoseCandidate> candidates) {
  std::vector<MimoseCandidate> sorted(candidates.begin(), candidates.end());
  std::ranges::stable_sort(sorted, [](const MimoseCandidate& left, const MimoseCandidate& right) {
    return left.saved_bytes != right.saved_bytes ? left.saved_bytes > right.saved_bytes
                                                 : left.layer < right.layer;
  });
  return sorted;
}

// Runs of the sorted list that belong together with their first entry.
template <typename Belongs>
std::vector<std::vector<MimoseCandidate>> buckets_of(const std::vector<MimoseCandidate>& sorted,
                                                     Belongs belongs) {
  std::vector<std::vector<MimoseCandidate>> buckets;
  for (const MimoseCandidate& candidate : sorted) {
    if (buckets.empty() || !belongs(candidate.saved_bytes, buckets.back().front().saved_bytes)) {
      buckets.emplace_back();
    }
    buckets.back().push_back(candidate);
  }
  return buckets;
}

double largest_of(const std::vector<MimoseCandidate>& bucket) {
  return std::ranges::max_element(bucket, {}, &MimoseCandidate::saved_bytes)->saved_bytes;
}

// The bucket of the paper's rule: least largest estimate above `excess`, else largest of all.
// Buckets are ordered by size, so that is the last one above the excess, else the first.
std::size_t paper_bucket(const std::vector<std::vector<MimoseCandidate>>& buckets, double excess) {
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (largest_of(buckets[i]) > excess) chosen = i;
  }
  return chosen;
}

std::vector<std::size_t> schedule_paper(std::span<const MimoseCandidate> candidates,
                                        double excess) {
  auto buckets = buckets_of(by_size_descending(candidates),
                            [](double size, double head) { return size > kBucketFraction * head; });
  for (auto& bucket : buckets) std::ranges::sort(bucket, {}, &MimoseCandidate::layer);
  std::vector<std::size_t> chosen;
  while (excess > 0 && !buckets.empty()) {
    const std::size_t index = paper_bucket(buckets, excess);
    auto& bucket = buckets[index];
    chosen.push_back(bucket.front().layer);
    excess -= bucket.front().saved_bytes;
    bucket.erase(bucket.begin());
    if (bucket.empty()) buckets.erase(buckets.begin() + static_cast<std::ptrdiff_t>(index));
  }
  return chosen;
}

std::vector<std::size_t> schedule_code(std::span<const MimoseCandidate> candidates, double need) {
  auto buckets = buckets_of(by_size_descending(candidates), [](double size, double head) {
    return size >= kBucketFraction * head;
  });
  std::vector<MimoseCandidate> order;
  for (auto& bucket : buckets) {
    std::ranges::sort(bucket, std::greater<>(), &MimoseCandidate::layer);
    order.insert(order.end(), bucket.begin(), bucket.end());
  }
  std::vector<std::size_t> chosen;
  double covered = 0;
  while (covered < need && !order.empty()) {
    const auto large_enough = std::find_if(
        order.rbegin(), order.rend(), [missing = need - covered](const MimoseCandidate& entry) {
          return entry.saved_bytes >= missing;
        });
    const auto taken =
        large_enough == order.rend() ? std::prev(order.end()) : std::prev(large_enough.base());
    chosen.push_back(taken->layer);
    covered += taken->saved_bytes;
    order.erase(taken);
  }
  return chosen;
}

}  // namespace

std::vector<std::size_t> schedule_mimose(MimoseRule rule,
                                         std::span<const MimoseCandidate> candidates,
                                         double need_bytes) {
  return rule == MimoseRule::kPaper ? schedule_paper(candidates, need_bytes)
                                    : schedule_code(candidates, need_bytes);
}

}  // namespace pudica
