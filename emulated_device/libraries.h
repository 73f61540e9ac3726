// Libraries of the emulated device's that are loaded only where they are needed.
#pragma once

namespace pudica::emulated {

// A function of a library that lies beside this one; null, and said on standard error, where there
// is none.
void* symbol_beside_us(const char* library, const char* symbol);

// Whether the program has a library of this name.
bool is_loaded(const char* soname);

}  // namespace pudica::emulated
