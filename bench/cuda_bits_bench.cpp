// Bits on a CUDA device against its memory: bytes moved a second by packing and unpacking, over
// those of a copy within the device, interleaved. 1: as fast as memory allows.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>

#include "bench/harness.h"
#include "cuda/bits_kernels.h"

namespace pudica {
namespace {

constexpr std::int64_t kBytes = std::int64_t{256} << 20U;
constexpr std::uint64_t kSeed = 1;

double gigabytes_per_second(double bytes, const std::function<void()>& work) {
  at::cuda::CUDAEvent begin(cudaEventDefault);
  at::cuda::CUDAEvent end(cudaEventDefault);
  begin.record();
  work();
  end.record();
  end.synchronize();
  return 1e-9 * bytes / (1e-3 * static_cast<double>(begin.elapsed_time(end)));
}

int run(int argc, char** argv) {
  const bench::Arguments arguments = bench::parse_arguments(argc, argv, /*calls=*/50);
  if (!at::cuda::is_available()) {
    std::fputs("cuda_bits_bench: no CUDA device: expected one\n", stderr);
    return 2;
  }
  at::manual_seed(kSeed);
  bench::Report report("cuda_bits", kSeed);
  const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte).device(at::kCUDA);
  const at::Tensor to = at::empty({kBytes}, bytes);
  const at::Tensor packed = at::empty({kBytes / 8 + 16}, bytes);
  auto* const out = static_cast<char*>(packed.data_ptr());
  auto* const found = reinterpret_cast<hooks::FoundBits*>(out + kBytes / 8);
  const auto stream = at::cuda::getCurrentCUDAStream();
  for (const at::ScalarType type : {at::kBool, at::kBFloat16, at::kFloat}) {
    const auto item_bytes = static_cast<std::int64_t>(c10::elementSize(type));
    const std::int64_t count = kBytes / item_bytes;
    const at::Tensor mask = at::empty({count}, bytes.dtype(type)).bernoulli_(0.9);
    const double moved = static_cast<double>(kBytes) + static_cast<double>(count) / 8;
    const std::string item = std::to_string(item_bytes) + "-byte elements";
    std::vector<double> packs;
    std::vector<double> unpacks;
    std::vector<double> copies;
    for (std::int64_t call = -3; call < arguments.calls; ++call) {
      const double copy = gigabytes_per_second(2.0 * static_cast<double>(kBytes), [&] {
        C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), mask.const_data_ptr(), kBytes,
                                       cudaMemcpyDeviceToDevice, stream));
      });
      const double pack = gigabytes_per_second(moved, [&] {
        hooks::launch_pack(mask.const_data_ptr(), {count, item_bytes}, out, found, stream);
      });
      const double unpack = gigabytes_per_second(moved, [&] {
        hooks::launch_unpack(out, {count, item_bytes}, /*value=*/1, to.data_ptr(), stream);
      });
      if (call < 0) continue;  // the first ones warm up
      copies.push_back(copy);
      packs.push_back(pack / copy);
      unpacks.push_back(unpack / copy);
    }
    report.add("copy, " + item, "GB/s", copies);
    report.add("pack / copy, " + item, "ratio", packs);
    report.add("unpack / copy, " + item, "ratio", unpacks);
  }
  return report.write(arguments);
}

}  // namespace
}  // namespace pudica

int main(int argc, char** argv) { return pudica::run(argc, argv); }
