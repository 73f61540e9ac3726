// Whether a forward finds its weights cast: autocast keeps the casts until it is left.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

namespace pudica::hooks {

// Of the forwards under one autocast the first casts the weights, and the others find them (torch's
// cache, which is emptied as the outermost context is left). Not thread-safe.
class CastCache {
 public:
  // Autocast is on, on `device`, and what a forward cast since the latest call of this is still
  // there. False where that cannot be told.
  [[nodiscard]] bool hold_since_last_forward(c10::Device device);
  // They were made in the latest forward: what it left behind has them among it.
  [[nodiscard]] bool are_new() const { return holds_ && !held_before_; }

 private:
  bool look(c10::Device device);
  bool look_where_it_is_on(c10::Device device);

  using Impl = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using WeakImpl = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  bool holds_ = false;        // as the latest call said
  bool held_before_ = false;  // and the one before
  at::Tensor probe_;          // a weight to autocast, of no elements
  WeakImpl cast_{Impl()};     // nobody but the cache holds it
};

}  // namespace pudica::hooks
