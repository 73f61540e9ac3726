// The clock of a CUDA device: an event on the stream that is current where it is read. The host
// never waits for one.
#include <algorithm>
#include <memory>
#include <optional>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "torch/device_clock.h"

namespace pudica::hooks {
namespace {

// What the host asks of an event leaves no error behind for others to find.
bool succeeded(cudaError_t status) {
  if (status == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return false;
}

class CudaInstant final : public DeviceInstant {
 public:
  // Null: it could not be recorded.
  static std::shared_ptr<CudaInstant> record(c10::DeviceIndex device) {
    const c10::cuda::CUDAGuard guard(device);
    const c10::cuda::CUDAStreamCaptureModeGuard others_capture(cudaStreamCaptureModeRelaxed);
    if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
      return nullptr;  // it would become a part of the graph
    }
    cudaEvent_t event = nullptr;
    if (!succeeded(cudaEventCreateWithFlags(&event, cudaEventDefault))) return nullptr;
    auto instant = std::shared_ptr<CudaInstant>(new CudaInstant(event));
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
    return succeeded(cudaEventRecord(event, stream)) ? instant : nullptr;
  }
  ~CudaInstant() override { succeeded(cudaEventDestroy(event_)); }
  CudaInstant(const CudaInstant&) = delete;
  CudaInstant& operator=(const CudaInstant&) = delete;

  [[nodiscard]] std::optional<double> seconds_since(const DeviceInstant& begin) const override {
    const auto& from = static_cast<const CudaInstant&>(begin);
    const c10::cuda::CUDAStreamCaptureModeGuard others_capture(cudaStreamCaptureModeRelaxed);
    if (!succeeded(cudaEventQuery(event_)) || !succeeded(cudaEventQuery(from.event_))) {
      return std::nullopt;
    }
    float milliseconds = 0;
    if (!succeeded(cudaEventElapsedTime(&milliseconds, from.event_, event_))) return std::nullopt;
    return std::max(0.0, 1e-3 * static_cast<double>(milliseconds));
  }

 private:
  explicit CudaInstant(cudaEvent_t event) : event_(event) {}

  cudaEvent_t event_;
};

class CudaClock final : public DeviceClock {
 public:
  explicit CudaClock(c10::DeviceIndex device) : device_(device) {}

  std::shared_ptr<const DeviceInstant> now() noexcept override {
    try {
      return CudaInstant::record(device_);
    } catch (...) {  // it is only a time that is not known then
      return nullptr;
    }
  }

 private:
  c10::DeviceIndex device_;
};

std::shared_ptr<DeviceClock> cuda_clock(c10::Device device) {
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::cuda::current_device();
  if (index < 0 || index >= c10::cuda::device_count()) return nullptr;
  return std::make_shared<CudaClock>(index);
}

[[maybe_unused]] const bool registered = [] {
  register_device_clock(c10::DeviceType::CUDA, &cuda_clock);
  return true;
}();

}  // namespace
}  // namespace pudica::hooks
