// What the tape must know of an operator, read once from its schema.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace pudica::hooks {

struct OperatorFacts {
  std::uint64_t hash = 0;  // of its full name: the same in every build
  std::string name;        // without its namespace where that is aten
  std::size_t arguments = 0;
  std::vector<bool> writes;  // by argument: the schema says that it is written
  bool writes_any = false;
  bool only_views = false;          // every result is a view of an argument: nothing to record
  bool makes_empty = false;         // its result is not written: what fills it may be unseen
  bool makes_truth_values = false;  // bools that it makes of other types are bytes of 0 and 1
  bool foreign = false;             // not torch's own: its schema is not relied on
  bool not_repeatable = false;      // never run again: not aten, storage changers, hidden writers
  // It may draw random numbers: as torch tags it, or as it was seen to. Of others it is not looked
  // whether they did, but where calls are searched for a menu: a look copies the CPU's generator
  // and asks the driver for the device's, twice an operator.
  mutable std::atomic<bool> may_draw{false};
};

// Valid until the process ends. Thread-safe.
const OperatorFacts& facts_of(const c10::OperatorHandle& op);

// Of meta tensors, which compilers trace with, not even the number of bytes can be asked.
inline bool has_bytes(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() &&
         !tensor.key_set().has_backend(c10::BackendComponent::MetaBit);
}

// Calls `visit` for every tensor with a storage that an argument or a result holds.
template <typename F>
void each_tensor(const c10::IValue& value, const F& visit) {
  if (value.isTensor()) {
    if (has_bytes(value.toTensor())) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (has_bytes(tensor)) visit(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor && has_bytes(*tensor)) visit(*tensor);
    }
  }
}

}  // namespace pudica::hooks
