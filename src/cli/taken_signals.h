// TakenSignals: signals that go to one handler for a while.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace pudica::cli {

// What they did before comes back at the end. The handler may use only what is safe in one. Not
// thread-safe: signals are the process's.
template <std::size_t Count>
class TakenSignals {
 public:
  TakenSignals(const std::array<int, Count>& signals, void (*handler)(int)) : signals_(signals) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < Count; ++i) sigaction(signals_[i], &action, &before_[i]);
  }
  ~TakenSignals() {
    for (std::size_t i = 0; i < Count; ++i) sigaction(signals_[i], &before_[i], nullptr);
  }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

 private:
  std::array<int, Count> signals_;
  std::array<struct sigaction, Count> before_{};
};

}  // namespace pudica::cli
