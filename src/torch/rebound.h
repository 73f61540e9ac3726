// Tensors put on other storages: what is left of a saved tensor while its bytes are away.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace pudica::hooks {

// Another tensor of the same sizes and strides on `storage`; no grad_fn, a version counter of its
// own.
inline at::Tensor rebound(const at::Tensor& tensor, const c10::Storage& storage) {
  auto bound = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true);
  bound->set_storage_keep_dtype(storage);
  return at::Tensor(std::move(bound));
}

// A storage that holds nothing. Never destroyed.
inline const c10::Storage& no_bytes() {
  static const auto* const nothing = new c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, at::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr,
      false));
  return *nothing;
}

}  // namespace pudica::hooks
