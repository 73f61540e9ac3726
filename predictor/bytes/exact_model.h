// The exact model of a segment: its allocations and frees, event by event, as functions of the
// shape. Net and peak are the running sum and its maximum, so the terms of the maximum are learned
// apart and extrapolate exactly, which a fit of the peak itself cannot: the peak of explicit
// attention is a maximum of polynomials.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "predictor/bytes/counted_fit.h"
#include "predictor/bytes/event_fit.h"
#include "predictor/bytes/least_squares.h"
#include "predictor/bytes/monomials.h"
#include "predictor/bytes/split_fit.h"

namespace pudica::predictor {

// The log of one segment at one shape.
struct EventLog {
  std::span<const std::int64_t> deltas;     // signed, none zero
  std::span<const std::int64_t> monomials;  // at the log's shape
  double volume = 1;                        // of the log's shape
};

// How to read a single log, where nothing tells how a size moves with the shape.
enum class SingleShapeRule : std::uint8_t {
  kProportional,  // to the volume, where it divides the size
  kConstant,
};

struct ExactModelOptions {
  const MonomialBasis* basis = nullptr;  // of the logs' shapes
  std::int64_t granularity_bytes = 1;
  SingleShapeRule single_shape = SingleShapeRule::kProportional;
};

// Upper bounds take every size at the largest of its readings, and frees of older blocks at the
// smallest. They assume that unlike blocks do not share their sizes at all shapes seen.
struct ExactEstimate {
  std::int64_t net_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t net_upper_bytes = 0;
  std::int64_t peak_upper_bytes = 0;
  bool identified = false;
};

// One row a prefix of the log that can be the peak, or the single row of the net bytes.
struct PolynomialRows {
  std::vector<std::uint8_t> monomials;
  std::vector<std::vector<double>> coefficients;
};

// Compiled from logs with equal signs. Owns all it needs. Not thread-safe: predict() keeps scratch.
class ExactModel {
 public:
  // Requires: at least one log; all with the same signs in the same order. The order of frees with
  // nothing allocated between them tells nothing of net or peak, and may differ from log to log
  // (what a layer holds may go before its own or behind it): where sizes can be read from them
  // only, or only better, in order of size, they are.
  // What a model of earlier has read stands where the logs that are new agree. It has read the
  // first `logs` of them, and maybe others that are no longer there. Searches for what follows no
  // form are put off until the new ones are a quarter of all.
  struct Read {
    const ExactModel* model = nullptr;
    std::size_t logs = 0;
  };
  static ExactModel build(std::span<const EventLog> logs, const ExactModelOptions& options,
                          const Read& before);

  [[nodiscard]] ExactEstimate predict(std::span<const std::int64_t> monomials, double volume) const;
  // True if each of these deltas is what all forms of its size give: the log tells nothing new.
  [[nodiscard]] bool confirms(const EventLog& log) const;
  // True if some event follows no form and is interpolated.
  [[nodiscard]] bool interpolates() const { return interpolates_; }

  [[nodiscard]] PolynomialRows describe_net() const;
  // The distinct prefixes that are the peak at one of the shapes given, at most `most` of them.
  [[nodiscard]] PolynomialRows describe_peak(
      std::span<const std::vector<std::int64_t>> monomials_of_shapes, std::size_t most) const;

 private:
  // The size that one or several events share.
  struct EventSize {
    std::vector<Form> forms;          // in order of preference; empty: one of the next two
    std::optional<SplitForms> split;  // by length
    std::optional<LinearFit> fit;     // of an interpolated size
    bool is_weak = false;             // read from too few shapes for what it is
    bool is_at_rest = false;          // the largest is what it stays at
    std::int64_t largest_bytes = 0;   // seen
    double volume_of_largest = 1;
    std::size_t unsearched = 0;  // logs that came since a form was last looked for
    // Where it is weak: by size seen, up to which volume that is certain if all forms agree.
    std::vector<std::pair<std::int64_t, double>> seen;
  };
  struct SizeRange {
    std::int64_t low = 0;
    std::int64_t high = 0;
    bool is_weak = false;  // whatever the range is
  };
  // How the program names a size: an allocation, the free of a block of the segment's own, or
  // the free of an older block.
  enum class Role : std::uint8_t { kAllocate, kFreeOwn, kFreeOlder };
  static constexpr std::uint32_t kRoles = 3;

  [[nodiscard]] bool may_be_continued(std::span<const EventLog> logs) const;
  static ExactModel read_events(std::span<const EventLog> logs, const ExactModelOptions& options,
                                const Read& before);
  // What the sizes of a model share while they are read.
  struct Reading {
    const ExactModelOptions& options;
    Read before;
    std::optional<CountedShapes> counted;  // once some size needs it
    std::size_t vain_splits = 0;
  };
  [[nodiscard]] static bool is_read(const EventSize& size, std::size_t logs);
  [[nodiscard]] static bool agrees(const EventSize& size, std::span<const std::int64_t> monomials,
                                   std::int64_t bytes);
  [[nodiscard]] static bool stays(const EventSize& before, const SizeSamples& samples,
                                  const Reading& reading);
  [[nodiscard]] static bool is_vain(const EventSize& before, std::span<const EventLog> logs,
                                    const Reading& reading);
  static EventSize read_size(const SizeSamples& samples, std::span<const EventLog> logs,
                             Reading& reading, const EventSize* before);
  static void search_forms(const SizeSamples& samples, std::span<const EventLog> logs,
                           Reading& reading, EventSize& size);
  static void read_odd_size(const SizeSamples& samples, Reading& reading, EventSize& size);
  void add_size(EventSize size);
  void add_event(std::uint32_t size, std::int64_t sign);
  static std::int64_t point(const EventSize& size, std::span<const std::int64_t> monomials);
  static SizeRange range(const EventSize& size, std::span<const std::int64_t> monomials,
                         double volume);
  void set_size(std::uint32_t size, const SizeRange& range) const;
  // Net and peak of the program over scratch_.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> run_program() const;
  [[nodiscard]] std::vector<double> polynomial(const EventSize& size) const;
  void add_polynomial(std::uint32_t code, std::vector<double>& sum) const;

  std::vector<EventSize> sizes_;
  std::vector<std::uint32_t> program_;    // size * kRoles + role, in order
  std::vector<std::int64_t> own_blocks_;  // while building: live blocks of each size
  mutable std::vector<std::int64_t> scratch_;
  std::vector<std::uint32_t> doubtful_;  // sizes with more than one reading
  std::size_t columns_ = 0;
  std::size_t logs_ = 0;                   // that it was read from
  std::int64_t rounding_slack_bytes_ = 0;  // of upper bounds, where sizes are rounded up
  std::size_t unexplained_ = 0;  // sizes that follow no form, or one of two terms from two shapes
  bool interpolates_ = false;
  bool frees_are_ordered_ = false;
};

}  // namespace pudica::predictor
