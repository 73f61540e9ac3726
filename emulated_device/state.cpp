#include "emulated_device/state.h"

#include <atomic>
#include <cstdio>
#include <set>
#include <string>

#include "emulated_device/settings.h"

namespace pudica::emulated {
namespace {

thread_local cudaError_t thread_error = cudaSuccess;
thread_local int thread_device = 0;
std::atomic<bool> faulted{false};

}  // namespace

// State is never destroyed: torch's own statics free memory after ours would be gone.
std::mutex& lock_of_all() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

int current_device() { return thread_device; }
void set_current_device(int device) { thread_device = device; }

cudaError_t say(cudaError_t error) {
  if (error == cudaSuccess && faulted.load()) error = cudaErrorIllegalAddress;
  if (error != cudaSuccess) thread_error = error;
  return error;
}
cudaError_t last_error() { return faulted.load() ? cudaErrorIllegalAddress : thread_error; }
void forget_error() { thread_error = cudaSuccess; }

void fault(const char* what) {
  if (!faulted.exchange(true)) std::fprintf(stderr, "emulated device: fault: %s\n", what);
}

void log_once(const char* name) {
  if (!settings().log_stubs) return;
  static auto* seen = new std::set<std::string>;
  const Guard guard(lock_of_all());
  if (seen->insert(name).second) std::fprintf(stderr, "emulated device: stub %s\n", name);
}

}  // namespace pudica::emulated
