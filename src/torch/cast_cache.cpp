#include "torch/cast_cache.h"

#include <exception>

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace pudica::hooks {

bool CastCache::hold_since_last_forward(c10::Device device) {
  held_before_ = holds_;
  holds_ = look(device);
  return holds_;
}

bool CastCache::look(c10::Device device) {
  if (!at::autocast::is_autocast_enabled(device.type())) return false;
  // Operators of ours are not for modes of the user's to see; layers are not planned under any.
  if (c10::impl::TorchDispatchModeTLS::stack_len() > 0) return false;
  try {
    return look_where_it_is_on(device);
  } catch (const std::exception&) {  // of the device: nothing is known
    cast_.reset();
    return false;
  }
}

// A weight of ours is cast like any other where its cast is not there. It takes no memory.
bool CastCache::look_where_it_is_on(c10::Device device) {
  if (!probe_.defined() || probe_.device() != device) {
    probe_ = at::empty({0}, at::TensorOptions().dtype(at::kFloat).device(device));
    probe_.set_requires_grad(true);
  }
  const bool is_there = !cast_.expired();
  cast_.reset();
  const at::Tensor cast = at::autocast::cached_cast(at::autocast::get_autocast_dtype(device.type()),
                                                    probe_, device.type());
  if (cast.is_same(probe_)) return false;  // to float32: weights are what they are
  cast_ = WeakImpl(cast.getIntrusivePtr());
  return is_there;
}

}  // namespace pudica::hooks
