// Turnstile: lets a few threads at a time do what costs the processor.
#pragma once

#include <condition_variable>
#include <mutex>

namespace pudica::daemon {

// Whoever works beside those inside shares the processor with few, however many wait. Thread-safe.
class Turnstile {
 public:
  // Inside as long as it lives.
  class [[nodiscard]] Pass {
   public:
    explicit Pass(Turnstile& turnstile) : turnstile_(turnstile) { turnstile_.enter(); }
    ~Pass() { turnstile_.leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Turnstile& turnstile_;
  };

  explicit Turnstile(int most) : free_(most) {}

 private:
  void enter() {
    std::unique_lock lock(mutex_);
    left_.wait(lock, [this] { return free_ > 0; });
    --free_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++free_;
    left_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable left_;
  int free_;
};

}  // namespace pudica::daemon
