#include "torch/output_watch.h"

#include <algorithm>

namespace pudica::hooks {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

bool contains(const std::vector<const c10::StorageImpl*>& storages, const c10::StorageImpl* one) {
  return std::ranges::find(storages, one) != storages.end();
}

}  // namespace

void OutputWatch::called(std::int32_t layer, const std::vector<at::Tensor>& inputs) {
  std::vector<const c10::StorageImpl*>& read = layers_[layer].inputs;
  for (const at::Tensor& tensor : inputs) {
    if (const c10::StorageImpl* const storage = storage_of(tensor)) read.push_back(storage);
  }
  const auto before = layers_.find(layer - 1);
  if (before == layers_.end()) return;
  std::erase_if(before->second.outputs, [&read](const Output& output) {
    return !contains(read, output.storage._unsafe_get_target());
  });
}

void OutputWatch::made(std::int32_t layer, const std::vector<at::Tensor>& outputs,
                       at::Device device) {
  Layer& made = layers_[layer];
  if (const auto before = layers_.find(layer - 1); before != layers_.end()) {
    std::erase_if(before->second.outputs, [&outputs](const Output& output) {
      return std::ranges::find(outputs, output.storage._unsafe_get_target(), storage_of) !=
             outputs.end();
    });
  }
  std::vector<const c10::StorageImpl*> seen = made.inputs;
  for (const at::Tensor& tensor : outputs) {
    const c10::StorageImpl* const storage = storage_of(tensor);
    if (storage == nullptr || tensor.device() != device || contains(seen, storage)) continue;
    seen.push_back(storage);
    made.outputs.push_back(
        {tensor.storage().getWeakStorageImpl(), static_cast<std::int64_t>(storage->nbytes())});
  }
}

void OutputWatch::begins(std::int32_t layer) {
  ends();
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return;
  std::erase_if(found->second.outputs,
                [](const Output& output) { return output.storage.expired(); });
  under_way_ = layer;
}

void OutputWatch::ends() {
  const auto found = layers_.find(under_way_);
  under_way_ = -1;
  if (found == layers_.end()) return;
  for (const Output& output : found->second.outputs) {
    if (output.storage.expired()) found->second.held_bytes += output.bytes;
  }
}

std::int64_t OutputWatch::held_bytes(std::int32_t layer) const {
  const auto found = layers_.find(layer);
  return found == layers_.end() ? 0 : found->second.held_bytes;
}

}  // namespace pudica::hooks
