#include "torch/residents.h"

#include <algorithm>

namespace pudica::hooks {

void Residents::add(const std::vector<at::Tensor>& tensors) {
  std::int64_t added = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.device() != device_) continue;
    const c10::Storage& storage = tensor.storage();
    if (meter_.has_counted(storage.data_ptr())) continue;
    const c10::StorageImpl* address = storage.unsafeGetStorageImpl();
    const bool known =
        std::any_of(residents_.begin(), residents_.end(), [address](const Resident& resident) {
          return resident.address == address && !resident.storage.expired();
        });
    if (known) continue;
    const auto bytes = static_cast<std::int64_t>(storage.nbytes());
    residents_.push_back({storage.getWeakStorageImpl(), address, bytes});
    added += bytes;
  }
  bytes_ += added;
  meter_.add_uncounted(added);
}

void Residents::sweep() {
  std::int64_t gone = 0;
  std::erase_if(residents_, [&gone](const Resident& resident) {
    if (!resident.storage.expired()) return false;
    gone += resident.bytes;
    return true;
  });
  if (gone == 0) return;
  bytes_ -= gone;
  meter_.add_uncounted(-gone);
}

void Residents::clear() {
  residents_.clear();
  if (bytes_ != 0) meter_.add_uncounted(-bytes_);
  bytes_ = 0;
}

}  // namespace pudica::hooks
