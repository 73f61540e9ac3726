// OutputWatch: how long a layer itself holds what the next layer reads.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace pudica::hooks {

// An output goes when the backward of the layer that reads it is done, unless the layer that made
// it saved it as well (an activation, a norm's input): then it goes in that layer's own backward.
// Kept, that is; run again, a layer saves nothing. Holds no memory of tensors. Layers by their
// place in the step. Not thread-safe.
class OutputWatch {
 public:
  void clear() { layers_.clear(); }
  // A layer is called: nothing of its inputs will count as made by it, and of what the layer before
  // it made only what it reads.
  void called(std::int32_t layer, const std::vector<at::Tensor>& inputs);
  // What it made, of which only memory of `device` counts. What it hands on goes later.
  void made(std::int32_t layer, const std::vector<at::Tensor>& outputs, at::Device device);
  // In the backward: a layer's own begins; that of the one that began last is over.
  void begins(std::int32_t layer);
  void ends();
  // Bytes that were freed between the begin and the end of the layer's own backward.
  [[nodiscard]] std::int64_t held_bytes(std::int32_t layer) const;

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Output {
    WeakStorage storage;
    std::int64_t bytes = 0;
  };
  struct Layer {
    std::vector<const c10::StorageImpl*> inputs;  // compared, never followed
    std::vector<Output> outputs;
    std::int64_t held_bytes = 0;
  };

  std::map<std::int32_t, Layer> layers_;
  std::int32_t under_way_ = -1;
};

}  // namespace pudica::hooks
