#include "torch/layer_buffers.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "base/log.h"
#include "pudica/torch.h"
#include "torch/tensor_bytes.h"

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

// An operator may write it. (Into memory that lies over itself none does.)
bool is_writable(const at::Tensor& tensor) {
  return !tensor.is_nested() && tensor.layout() == at::kStrided &&
         at::has_internal_overlap(tensor) != at::MemOverlap::Yes;
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
  versions_after_ = versions_;
  std::vector<std::size_t> places(buffers.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::erase_if(places, [&](std::size_t i) { return !is_writable(buffers[i]); });
  const auto bytes = [&](std::size_t i) { return bytes_of(buffers[i]); };
  std::ranges::stable_sort(places, {}, bytes);
  const at::NoGradGuard no_grad;
  std::int64_t copied = 0;
  for (const std::size_t i : places) {
    copied += bytes(i);
    if (copied <= kMostCopiedBytes || changing.contains(i)) copies_[i] = buffers[i].clone();
  }
}

void LayerBuffers::end_forward() { versions_after_ = versions_of(buffers_); }

BufferPlaces LayerBuffers::changed() const {
  BufferPlaces places;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (versions_after_[i] != versions_[i]) places.insert(i);
  }
  return places;
}

bool LayerBuffers::are_lost() const {
  return std::ranges::any_of(changed(), [this](std::size_t i) { return !copies_[i].defined(); });
}

LayerBuffers::Rerun::Rerun(const LayerBuffers& buffers)
    : buffers_(buffers.buffers_), versions_now_(versions_of(buffers_)) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers.copies_[i].defined() || versions_now_[i] == buffers.versions_after_[i]) continue;
    throw Deviation("its buffer " + std::to_string(i) +
                    " was written after its forward, and is too large to be kept as it was");
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : buffers_) {
    now_.push_back(is_writable(buffer) ? buffer.clone() : at::Tensor());
  }
  try {
    put(buffers.copies_, buffers.versions_, buffers_);
  } catch (...) {
    put_back();
    throw;
  }
}

void LayerBuffers::Rerun::put_back() const {
  try {
    put(now_, versions_now_, buffers_);
  } catch (const std::exception& error) {
    log_warn(std::string("buffers could not be put back after a recompute: ") + error.what());
  }
}

LayerBuffers::Rerun::~Rerun() { put_back(); }

}  // namespace pudica::hooks
