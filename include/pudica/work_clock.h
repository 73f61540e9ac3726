// WorkClock: where the seconds come from that plans weigh against bytes.
#pragma once

namespace pudica {

// Tells how much work was done so far. Only differences between two readings count. Thread-safe.
class WorkClock {
 public:
  virtual ~WorkClock() = default;
  // Seconds, never less than before. Does not wait.
  [[nodiscard]] virtual double seconds() noexcept = 0;
};

}  // namespace pudica
