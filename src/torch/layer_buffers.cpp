#include "torch/layer_buffers.h"

#include <algorithm>
#include <cstddef>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

namespace pudica::hooks {
namespace {

// Tensors made in inference mode count nothing.
std::vector<std::int64_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::int64_t> versions;
  versions.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    versions.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  return versions;
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

// An undefined value leaves its buffer as it is.
void put(const std::vector<at::Tensor>& values, const std::vector<std::int64_t>& versions,
         const std::vector<at::Tensor>& buffers) {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!values[i].defined()) continue;
    buffers[i].copy_(values[i]);
    if (buffers[i].is_inference()) continue;
    c10::VariableVersion counter = buffers[i].unsafeGetTensorImpl()->version_counter();  // shared
    counter.set_version(versions[i]);
  }
}

}  // namespace

LayerBuffers::LayerBuffers(const std::vector<at::Tensor>& buffers, const BufferPlaces& changing)
    : buffers_(buffers), copies_(buffers.size()), versions_(versions_of(buffers)) {
  const at::NoGradGuard no_grad;
  const bool all = bytes_of(buffers) <= kMostCopiedBytes;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (all || changing.contains(i)) copies_[i] = buffers[i].clone();
  }
}

BufferPlaces LayerBuffers::changed() const {
  BufferPlaces places;
  const std::vector<std::int64_t> now = versions_of(buffers_);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != versions_[i]) places.insert(i);
  }
  return places;
}

bool LayerBuffers::are_lost() const {
  return std::ranges::any_of(changed(), [this](std::size_t i) { return !copies_[i].defined(); });
}

LayerBuffers::Rerun::Rerun(const LayerBuffers& buffers)
    : buffers_(buffers.buffers_), versions_now_(versions_of(buffers_)) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : buffers_) now_.push_back(buffer.clone());
  put(buffers.copies_, buffers.versions_, buffers_);
}

LayerBuffers::Rerun::~Rerun() { put(now_, versions_now_, buffers_); }

}  // namespace pudica::hooks
