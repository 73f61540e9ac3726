// Residents: bytes that live on a device and were never counted by its meter: parameters, buffers
// and optimizer state made before it was installed.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include "torch/meter.h"

namespace pudica::hooks {

// Counted with the meter while they live. Not thread-safe.
class Residents {
 public:
  explicit Residents(Meter& meter, c10::Device device) : meter_(meter), device_(device) {}
  ~Residents() { clear(); }
  Residents(const Residents&) = delete;
  Residents& operator=(const Residents&) = delete;

  // Tensors of other devices, and blocks that the meter or an earlier call has counted, are passed
  // over.
  void add(const std::vector<at::Tensor>& tensors);
  // Takes out what has died.
  void sweep();
  void clear();
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Resident {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const c10::StorageImpl* address;
    std::int64_t bytes;
  };

  Meter& meter_;
  c10::Device device_;
  std::vector<Resident> residents_;
  std::int64_t bytes_ = 0;
};

}  // namespace pudica::hooks
