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

// What is known of the buffers of a class of layers.
struct BufferHabit {
  BufferPlaces changing;  // that some call was seen to change
  // Calls on trial changed nothing on their layers: one whose buffers are lost is a surprise.
  bool keeps_no_state = false;
};

// A layer that is run again is to find its buffers as its forward found them, and to leave them as
// they are by then. Those that layers of its class are known to change are copied for that as the
// forward begins, and small ones, the smallest first; large ones are hardly ever changed (masks,
// tables of positions): they are only watched. Not thread-safe.
class LayerBuffers {
 public:
  static constexpr std::int64_t kMostCopiedBytes = std::int64_t{64} << 10;  // of small ones

  LayerBuffers() = default;
  // As the forward begins.
  explicit LayerBuffers(const std::vector<at::Tensor>& buffers, const BufferPlaces& changing = {});
  // As it ends.
  void end_forward();

  // Those that the forward has written, as far as their versions tell.
  [[nodiscard]] BufferPlaces changed() const;
  // Some of them were not copied: nobody knows what they were.
  [[nodiscard]] bool are_lost() const;

  // While it lives the layer finds its buffers as its forward did, where they were copied; then
  // they are again as they are now. Version counters likewise: a buffer that a graph has saved is
  // not written for it. Throws Deviation where one that was not copied was written after the
  // forward.
  class Rerun {
   public:
    explicit Rerun(const LayerBuffers& buffers);
    ~Rerun();
    Rerun(const Rerun&) = delete;
    Rerun& operator=(const Rerun&) = delete;

   private:
    void put_back() const;

    const std::vector<at::Tensor>& buffers_;
    std::vector<at::Tensor> now_;
    std::vector<std::int64_t> versions_now_;
  };

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;  // as the forward began; undefined: not copied
  std::vector<std::int64_t> versions_;
  std::vector<std::int64_t> versions_after_;  // of the forward
};

}  // namespace pudica::hooks
