// Pace: how fast the machine is now. Other programs and clock rates change it for all that runs,
// and for minutes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pudica {

// The median of the last ratios of measured to predicted times. Not thread-safe.
class Pace {
 public:
  // Of one step: what it took for what it was expected to. Ignored unless positive and finite.
  void note(double ratio);

  // Goes on from another's value. False, and nothing is changed: no pace.
  [[nodiscard]] bool set(double value);

  // 1 until there are enough. Rounded: it stays where it is until it has moved by more than 5 %.
  [[nodiscard]] double value() const { return value_; }
  // Rises when it has moved by more than 10 %: plans are made anew then.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  std::vector<double> ratios_;  // oldest first from next_ on
  std::size_t next_ = 0;
  double value_ = 1;
  double counted_ = 1;  // at the last change
  std::uint64_t changes_ = 0;
};

}  // namespace pudica
