// LayerBuffers: what a layer changes beside its outputs (batch norm's running statistics, ranges
// that an observer has seen), as it was when the layer's forward began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pudica::hooks {

// By their places among a layer's buffers.
using BufferPlaces = std::set<std::size_t>;

// A layer that is run again is to find its buffers as its forward found them, and to leave them as
// they are by then. Those that layers of its class are known to change are copied for that as the
// forward begins, and all where they are small; large ones are hardly ever changed (masks, tables
// of positions): they are only watched. Not thread-safe.
class LayerBuffers {
 public:
  static constexpr std::int64_t kMostCopiedBytes = std::int64_t{64} << 10;  // of one layer

  LayerBuffers() = default;
  // As the forward begins. `changing`: known to change.
  explicit LayerBuffers(const std::vector<at::Tensor>& buffers, const BufferPlaces& changing = {});

  // Those that were written since.
  [[nodiscard]] BufferPlaces changed() const;
  // Some of them were not copied: nobody knows what they were.
  [[nodiscard]] bool are_lost() const;

  // While it lives the layer finds its buffers as its forward did, where they were copied; then
  // they are again as they are now. Version counters likewise: a buffer that a graph has saved is
  // not written for it.
  class Rerun {
   public:
    explicit Rerun(const LayerBuffers& buffers);
    ~Rerun();
    Rerun(const Rerun&) = delete;
    Rerun& operator=(const Rerun&) = delete;

   private:
    const std::vector<at::Tensor>& buffers_;
    std::vector<at::Tensor> now_;
    std::vector<std::int64_t> versions_now_;
  };

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;  // as the forward began; undefined: not copied
  std::vector<std::int64_t> versions_;
};

}  // namespace pudica::hooks
