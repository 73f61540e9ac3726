// What of a step's forward lives on: a user's variables hold outputs of a step until the next one's
// take their place (`out = model(x)`).
#pragma once

#include <atomic>
#include <cstdint>

namespace pudica::hooks {

// Thread-safe.
class ForwardAccount {
 public:
  // A new step's forward: until a backward allocates, or end(). `shares`: those before it wait for
  // the same backward.
  void begin(bool shares);
  void end() { forward_.store(0); }

  // The forward that a block of `bytes` made now belongs to; 0: none.
  std::uint32_t made(std::int64_t bytes);
  struct Freed {
    bool is_this_steps = true;      // else what the step's segments do did not free it
    bool all_has_returned = false;  // of the forward before, with this block
  };
  Freed freed(std::int64_t bytes, std::uint32_t forward);

  // Of the forward before this one: what lived on when this one began, and how much of that was
  // freed since, outside of backwards.
  [[nodiscard]] std::int64_t held_bytes() const { return held_.load(); }
  [[nodiscard]] std::int64_t returned_bytes() const { return returned_.load(); }

 private:
  // Another than the one in a hook of which the forward began, if it did (GradCache).
  [[nodiscard]] bool in_backward() const;

  std::atomic<int> within_{-1};
  std::atomic<std::uint32_t> forward_{0};      // under way; 0: none
  std::atomic<std::uint32_t> forwards_{0};     // the latest
  std::atomic<std::uint32_t> shared_from_{0};  // the first that shares its backward
  std::atomic<std::int64_t> own_{0};           // live bytes of the latest
  std::atomic<std::int64_t> held_{0};
  std::atomic<std::int64_t> returned_{0};
};

}  // namespace pudica::hooks
