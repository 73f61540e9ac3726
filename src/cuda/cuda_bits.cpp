// Bits of a CUDA device's tensors. Whether a tensor has two values must be known before its bytes
// go, so that packing waits for its kernel where that is not known beforehand: the host has no lead
// over the device then. Unpacking does not.
#include <array>
#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "base/log.h"
#include "cuda/bits_kernels.h"
#include "torch/bits.h"

namespace pudica::hooks {
namespace {

constexpr std::int64_t kWordElements = 64;
constexpr std::int64_t kMostDevices = 64;

at::Tensor new_words(std::int64_t count, c10::Device device) {
  return at::empty({count}, at::TensorOptions().dtype(at::kLong).device(device));
}

// Not by torch's own function: one who looks for synchronisations in their training finds none of
// theirs here.
void copy_and_wait(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

// The words, and behind them what was found. Requires: the storage's device is the current one.
std::optional<Bits> encode(const c10::Storage& storage, std::int64_t item_bytes,
                           Contents contents) {
  const std::int64_t count = static_cast<std::int64_t>(storage.nbytes()) / item_bytes;
  const std::int64_t words = (count + kWordElements - 1) / kWordElements;
  Bits bits;
  bits.bytes = static_cast<std::int64_t>(storage.nbytes());
  bits.item_bytes = item_bytes;
  bits.packed = new_words(words + 1, storage.device());
  auto* const out = static_cast<std::int64_t*>(bits.packed.data_ptr());
  auto* const found_there = reinterpret_cast<FoundBits*>(out + words);
  launch_pack(storage.data(), {count, item_bytes}, out, found_there,
              c10::cuda::getCurrentCUDAStream());
  if (contents == Contents::kTruthValues) {
    // Nobody waits: memory of another stream's must not be used again before this one has read it.
    c10::cuda::CUDACachingAllocator::recordStream(storage.data_ptr(),
                                                  c10::cuda::getCurrentCUDAStream());
    bits.value = 1;
    return bits;
  }
  FoundBits found{};
  copy_and_wait(&found, found_there, sizeof found, cudaMemcpyDeviceToHost);
  if (found.strange != 0) return std::nullopt;
  bits.value = found.value;
  return bits;
}

c10::Storage decode(const Bits& bits) {
  const c10::cuda::CUDAGuard guard(bits.packed.device());
  const auto options = at::TensorOptions().dtype(at::kByte).device(bits.packed.device());
  c10::Storage storage = at::empty({bits.bytes}, options).storage();
  launch_unpack(bits.packed.const_data_ptr(), {bits.bytes / bits.item_bytes, bits.item_bytes},
                bits.value, storage.mutable_data(), c10::cuda::getCurrentCUDAStream());
  return storage;
}

std::optional<Bits> encode_there(const std::vector<char>& bytes, std::int64_t item_bytes,
                                 c10::Device device) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const at::Tensor there = at::empty({static_cast<std::int64_t>(bytes.size())}, options);
  copy_and_wait(there.mutable_data_ptr(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  return encode(there.storage(), item_bytes, Contents::kAny);
}

// 1000 elements of two values there and back; with a third value they must be refused.
bool round_trip(std::int64_t item_bytes, c10::Device device) {
  constexpr std::int64_t kCount = 1000;
  std::vector<char> bytes(static_cast<std::size_t>(kCount * item_bytes), 0);
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (i * i % 7 < 3) bytes[static_cast<std::size_t>(i * item_bytes)] = 0x5A;
  }
  const auto bits = encode_there(bytes, item_bytes, device);
  if (!bits) return false;
  const c10::Storage back = decode(*bits);
  std::vector<char> seen(bytes.size(), 1);
  copy_and_wait(seen.data(), back.data(), seen.size(), cudaMemcpyDeviceToHost);
  if (seen != bytes) return false;
  bytes[static_cast<std::size_t>(997 * item_bytes)] = 0x11;
  return !encode_there(bytes, item_bytes, device);
}

// Tried once a device, before the first use: kernels that cannot be compiled, loaded or trusted
// there must cost no more than the mode.
bool works_on(c10::Device device) {
  enum : int { kUnknown, kWorks, kFails };
  static std::array<std::atomic<int>, kMostDevices> known{};
  if (device.index() < 0 || device.index() >= kMostDevices) return false;
  auto& state = known[static_cast<std::size_t>(device.index())];
  if (state.load() != kUnknown) return state.load() == kWorks;
  std::string why_not;
  try {
    const bool works = round_trip(1, device) && round_trip(2, device) && round_trip(4, device);
    if (!works) why_not = "its kernels give other bytes";
  } catch (const c10::Error& error) {
    why_not = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  if (!why_not.empty()) log_info("masks are not held as bits on " + device.str() + ": " + why_not);
  state.store(why_not.empty() ? kWorks : kFails);
  return why_not.empty();
}

std::optional<Bits> encode_checked(const c10::Storage& storage, std::int64_t item_bytes,
                                   Contents contents) {
  const c10::cuda::CUDAGuard guard(storage.device());
  const bool capturing =
      c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  if (capturing || !works_on(storage.device())) return std::nullopt;
  return encode(storage, item_bytes, contents);
}

[[maybe_unused]] const bool registered = [] {
  register_cuda_bits({&encode_checked, &decode});
  return true;
}();

}  // namespace
}  // namespace pudica::hooks
