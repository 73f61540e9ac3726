// Margin: what the controller holds back from the budget, learned from its own errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace pudica {

// Online conformal quantile (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World",
// 2005, chapter 2) of the relative errors measured / predicted - 1 over a bounded window: of n
// errors the one of rank ceil((n + 1) (1 - rate)) is exceeded by the next error with probability
// at most `rate`. While n is too small to have that rank, the largest error seen stands in, with a
// prior of 0.1 % that one sample halves: with exact predictions the margin goes to zero at once,
// and what is missed in the meantime costs a revocation, not a failure.
// Not thread-safe: one owner thread.
class Margin {
 public:
  static constexpr std::size_t kWindow = 512;
  static constexpr double kPriorFraction = 0.001;

  // `revocation_rate` in (0, 0.5]: the share of steps whose error may exceed the margin.
  explicit Margin(double revocation_rate);

  // Relative error of one step; ignored unless finite.
  void add(double relative_error);
  // Forgets what was seen: the errors of a model that is no longer used say nothing.
  void reset();

  // >= 0. Predicted peaks should stay below budget / (1 + fraction()).
  [[nodiscard]] double fraction() const { return fraction_; }
  // The bytes of `budget_bytes` to hold back, rounded up.
  [[nodiscard]] std::int64_t held_back_bytes(std::int64_t budget_bytes) const;
  [[nodiscard]] const std::deque<double>& errors() const { return errors_; }

 private:
  void refresh();

  double rate_;
  std::deque<double> errors_;  // oldest first, at most kWindow
  double fraction_ = kPriorFraction;
};

}  // namespace pudica
