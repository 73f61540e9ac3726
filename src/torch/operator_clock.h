// The work of an operator, reckoned from its name and arguments, and a clock made of it.
#pragma once

#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace pudica::hooks {

struct OperatorLoad {
  double flops = 0;  // multiplications and additions of products of matrices; 0 for all else
  double bytes = 0;  // of the tensors that are read
};

// Of one call. `name` with or without its namespace. Products are known by name (mm, linear,
// attention, convolution, ...): their floating-point operations follow from the arguments' sizes.
// A forward and what takes part in its backward are reckoned alike.
OperatorLoad load_of(std::string_view name, c10::ArrayRef<const c10::IValue> arguments);

}  // namespace pudica::hooks
