// Bits: a lossless form of two-valued tensors (dropout's noise and masks), one bit an element.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/Tensor.h>
#include <c10/core/Storage.h>

namespace pudica::hooks {

// The elements of one storage, each 0 or the one other value. Compared as integers: -0.0 and NaN
// are values like any other, so that decoding gives every bit back.
struct Bits {
  at::Tensor packed;  // one bit an element, from the metered allocator
  std::int64_t bytes = 0;
  std::int64_t item_bytes = 0;  // 1, 2 or 4
  std::uint32_t value = 0;      // 0: it has none but 0
};

// What is known of a storage's elements beforehand.
enum class Contents : std::uint8_t {
  kAny,
  kTruthValues,  // each is one byte, 0 or 1: what an operator made that computes true and false
};

// nullopt: more than two values, an item size other than 1, 2 and 4, or a device that has no code
// for it (a CUDA device without pudica_torch_cuda). A CUDA device is waited for where the contents
// are not known. Thread-safe.
std::optional<Bits> encode_bits(const c10::Storage& storage, std::int64_t item_bytes,
                                Contents contents = Contents::kAny);

// Whether both values are there (in all whole words): one alone is no evidence that there will be
// no third in another call. A device is waited for.
bool has_both_values(const Bits& bits);

// A new storage with the same bytes, on the device of the packed ones.
c10::Storage decode_bits(const Bits& bits);

// What a CUDA device does; encode is given storages that are not empty and item sizes that are
// known.
struct BitsOfDevice {
  std::optional<Bits> (*encode)(const c10::Storage& storage, std::int64_t item_bytes,
                                Contents contents) = nullptr;
  c10::Storage (*decode)(const Bits& bits) = nullptr;
};
void register_cuda_bits(const BitsOfDevice& functions);

}  // namespace pudica::hooks
