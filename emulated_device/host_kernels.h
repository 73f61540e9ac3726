// Kernels that the emulated device runs on the host: ours, whose source says all that they do. A
// library of its own, loaded where a program asks the driver for a kernel.
#pragma once

#include <functional>

extern "C" {

// The kernel of that name with its arguments taken over; empty: there is none.
void emulated_device_bind_kernel(const char* name, void** arguments, std::function<void()>* bound);
}

namespace pudica::emulated {

using BindKernel = decltype(&emulated_device_bind_kernel);

}  // namespace pudica::emulated
