// pudica's kernels of bits, from their own source: what is packed on the emulated device is packed.
#include "emulated_device/host_kernels.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "emulated_device/device_language.h"

// The source itself, behind the words that it is written in.
#include "src/cuda/bits_kernels.cu"

namespace {

template <typename... Types, std::size_t... kIndices>
std::function<void()> take_over(void (*kernel)(Types...), void** arguments,
                                std::index_sequence<kIndices...> /*each*/) {
  return [kernel, ... taken = *static_cast<Types*>(arguments[kIndices])] { kernel(taken...); };
}

template <typename... Types>
std::function<void()> take_over(void (*kernel)(Types...), void** arguments) {
  return take_over(kernel, arguments, std::index_sequence_for<Types...>());
}

}  // namespace

extern "C" void emulated_device_bind_kernel(const char* name, void** arguments,
                                            std::function<void()>* bound) {
  const std::string_view wanted(name);
  if (wanted == "pudica_pack_1") *bound = take_over(&pudica_pack_1, arguments);
  if (wanted == "pudica_pack_2") *bound = take_over(&pudica_pack_2, arguments);
  if (wanted == "pudica_pack_4") *bound = take_over(&pudica_pack_4, arguments);
  if (wanted == "pudica_unpack_1") *bound = take_over(&pudica_unpack_1, arguments);
  if (wanted == "pudica_unpack_2") *bound = take_over(&pudica_unpack_2, arguments);
  if (wanted == "pudica_unpack_4") *bound = take_over(&pudica_unpack_4, arguments);
}
