// OutputWatch: how long a layer itself holds what the next layer reads, and what they read
// together.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace pudica::hooks {

// An output goes when the backward of the layer that reads it is done, unless the layer that made
// it saved it as well (an activation, a gate): then it goes in that layer's own backward. Kept,
// that is; run again, a layer saves nothing. What the first of a chain reads may be held by what
// made it as well. Holds no memory of tensors. Layers by their place in the step. Not thread-safe.
class OutputWatch {
 public:
  void clear() {
    layers_.clear();
    shared_.clear();
    made_.clear();
  }
  // A layer is called: nothing of its inputs will count as made by it, and of what the layer before
  // it made only what it reads: also what that did not return but left somewhere (keys and values
  // in a cache), which `made_by_last` knows by its place and is given back, to be watched for its
  // end. Only memory of `device` counts.
  using MadeByLast = std::function<bool(const void*)>;
  std::vector<const void*> called(std::int32_t layer, const std::vector<at::Tensor>& inputs,
                                  at::Device device, const MadeByLast& made_by_last = nullptr);
  // What it made. What it hands on goes later.
  void made(std::int32_t layer, const std::vector<at::Tensor>& outputs, at::Device device);
  // In the backward: a layer's own begins; that of the one that began last is over.
  void begins(std::int32_t layer);
  void ends();
  // Bytes of what the layer made that were freed between begin and end of its own backward.
  [[nodiscard]] std::int64_t held_bytes(std::int32_t layer) const;
  // Bytes of what the layer read that outlive its backward, where the next layer reads its outputs
  // instead. Nothing of what a layer made.
  [[nodiscard]] std::int64_t left_bytes(std::int32_t layer) const;
  // Where the memory of those outputs was that were gone before the layer's own backward.
  [[nodiscard]] std::vector<const void*> gone_early(std::int32_t layer) const;
  // Where the memory was of outputs that no layer behind it read (attention's weights, returned for
  // whoever wants them). Of the last layer's, those that were not read of the one before it.
  [[nodiscard]] std::vector<const void*> unread(std::int32_t layer) const;
  // Of what the layer made: where to watch for its end.
  [[nodiscard]] std::vector<const void*> places(std::int32_t layer) const;
  // Where memory lies that layers made or read and that is still there: what the backward is to
  // free.
  [[nodiscard]] std::vector<const void*> live_places() const;
  [[nodiscard]] bool empty() const { return layers_.empty(); }
  // Where the memory is of what two layers in a row read and no layer made (a mask, tables of
  // positions): the last of them to read it in the backward lets it go, as no other layer does.
  [[nodiscard]] const std::vector<const void*>& shared() const { return shared_; }

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  struct Watched {
    WeakStorage storage{c10::intrusive_ptr<c10::StorageImpl>()};
    std::int64_t bytes = 0;
    const void* data = nullptr;
  };
  struct Layer {
    std::vector<Watched> inputs;  // in order; without a storage where there is none to watch
    std::vector<Watched> outputs;
    std::vector<Watched> given;  // read where the next layer reads outputs; made by no layer
    std::vector<const void*> gone_early;
    std::vector<Watched> returned;    // every output, without a storage where it made none
    std::vector<std::size_t> unread;  // of those
    std::int64_t held_bytes = 0;
    std::int64_t left_bytes = 0;
  };

  static Watched watched(const at::Tensor& tensor, at::Device device);
  [[nodiscard]] static bool contains(const std::vector<Watched>& all, const Watched& one);

  std::map<std::int32_t, Layer> layers_;
  std::vector<const void*> shared_;  // in the order in which that showed
  std::vector<const void*> made_;    // where what layers made is, or was
  std::int32_t under_way_ = -1;
};

}  // namespace pudica::hooks
