// FakePredictor: remembers samples and answers for the shapes it saw, for tests of its users.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pudica/predictor.h"

namespace pudica::testing {

// At a shape it saw: that sample. At another: the last sample, as a scaled guess with upper bounds
// twice as large, unidentified.
class FakePredictor final : public Predictor {
 public:
  void observe(const SegmentKey& segment, const ShapeKey& shape,
               const SegmentSample& sample) override {
    samples_[segment].insert_or_assign(shape, sample);
    last_[segment] = shape;
    ++version_;
  }
  void observe_time(const SegmentKey& segment, const ShapeKey& shape, double seconds) override {
    const auto found = samples_.find(segment);
    if (found == samples_.end()) return;
    const auto same = found->second.find(shape);
    if (same == found->second.end()) return;
    same->second.seconds = seconds;
    ++version_;
  }
  std::optional<SegmentEstimate> predict(const SegmentKey& segment,
                                         const ShapeKey& shape) const override {
    const auto found = samples_.find(segment);
    if (found == samples_.end()) return std::nullopt;
    const auto same = found->second.find(shape);
    const bool seen = same != found->second.end();
    const SegmentSample& sample = seen ? same->second : found->second.at(last_.at(segment));
    SegmentEstimate out;
    out.net_bytes = out.net_upper_bytes = sample.net_bytes;
    out.peak_bytes = out.peak_upper_bytes = sample.peak_bytes;
    out.seconds = sample.seconds;
    out.basis = seen ? PredictionBasis::kExact : PredictionBasis::kScaled;
    out.identified = seen;
    if (!seen) out.peak_upper_bytes *= 2;
    if (!seen && out.net_bytes > 0) out.net_upper_bytes *= 2;
    return out;
  }
  std::int64_t distinct_shapes(const SegmentKey& segment) const override {
    const auto found = samples_.find(segment);
    return found == samples_.end() ? 0 : static_cast<std::int64_t>(found->second.size());
  }
  std::optional<ShapeKey> latest_shape(const SegmentKey& segment) const override {
    const auto found = last_.find(segment);
    return found == last_.end() ? std::nullopt : std::optional(found->second);
  }
  std::vector<SegmentKey> segments() const override {
    std::vector<SegmentKey> out;
    for (const auto& [key, samples] : samples_) out.push_back(key);
    return out;
  }
  void forget(const SegmentKey& segment) override {
    samples_.erase(segment);
    last_.erase(segment);
    ++version_;
  }
  std::uint64_t version() const override { return version_; }
  std::vector<LearnedQuantity> describe() const override { return {}; }
  std::string serialize() const override { return "fake"; }
  Result<void> restore(const std::string& text) override {
    if (text == "fake") return {};
    return Error{ErrorCode::kCorrupt, "not a fake"};
  }

 private:
  std::map<SegmentKey, std::map<ShapeKey, SegmentSample>> samples_;
  std::map<SegmentKey, ShapeKey> last_;
  std::uint64_t version_ = 0;
};

}  // namespace pudica::testing
