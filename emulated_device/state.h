// What every part shares: one lock over all devices, the calling thread's device and last error.
#pragma once

#include <mutex>

#include <cuda_runtime_api.h>

namespace pudica::emulated {

// Guards all state of all devices. Functions that say "Requires: the lock" are called under it.
std::mutex& lock_of_all();
using Guard = std::lock_guard<std::mutex>;

int current_device();
// Requires: it is one.
void set_current_device(int device);

// The thread's last error is what cudaGetLastError tells and forgets. Once the device has faulted
// all that would have succeeded says so: it stays, as on a card.
cudaError_t say(cudaError_t error);
cudaError_t last_error();
void forget_error();

// Work touched memory that is not there: told on standard error, once, with this.
void fault(const char* what);

// Once for each name, where PUDICA_EMULATED_LOG asks for it.
void log_once(const char* name);

}  // namespace pudica::emulated
