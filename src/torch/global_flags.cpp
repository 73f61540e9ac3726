#include "torch/global_flags.h"

#include <utility>

#include <ATen/Parallel.h>

namespace pudica::hooks {
namespace {

using at::Context;

struct Switch {
  bool (*read)(const Context&);
  void (*write)(Context&, bool);
};

// Those of determinism apart: two that are set together.
constexpr Switch kSwitches[] = {
    {[](const Context& c) { return c.userEnabledFlashSDP(); },
     [](Context& c, bool on) { c.setSDPUseFlash(on); }},
    {[](const Context& c) { return c.userEnabledMemEfficientSDP(); },
     [](Context& c, bool on) { c.setSDPUseMemEfficient(on); }},
    {[](const Context& c) { return c.userEnabledMathSDP(); },
     [](Context& c, bool on) { c.setSDPUseMath(on); }},
    {[](const Context& c) { return c.userEnabledCuDNNSDP(); },
     [](Context& c, bool on) { c.setSDPUseCuDNN(on); }},
    {[](const Context& c) { return c.userEnabledOverrideableSDP(); },
     [](Context& c, bool on) { c.setSDPUseOverrideable(on); }},
    {[](const Context& c) { return c.allowFP16BF16ReductionMathSDP(); },
     [](Context& c, bool on) { c.setAllowFP16BF16ReductionMathSDP(on); }},
    {[](const Context& c) { return c.userEnabledMkldnn(); },
     [](Context& c, bool on) { c.setUserEnabledMkldnn(on); }},
    {[](const Context& c) { return c.deterministicMkldnn(); },
     [](Context& c, bool on) { c.setDeterministicMkldnn(on); }},
    {[](const Context& c) { return c.userEnabledCuDNN(); },
     [](Context& c, bool on) { c.setUserEnabledCuDNN(on); }},
    {[](const Context& c) { return c.benchmarkCuDNN(); },
     [](Context& c, bool on) { c.setBenchmarkCuDNN(on); }},
    {[](const Context& c) { return c.deterministicCuDNN(); },
     [](Context& c, bool on) { c.setDeterministicCuDNN(on); }},
    {[](const Context& c) { return c.deterministicAlgorithms(); },
     [](Context& c, bool on) {
       c.setDeterministicAlgorithms(on, c.deterministicAlgorithmsWarnOnly());
     }},
    {[](const Context& c) { return c.deterministicAlgorithmsWarnOnly(); },
     [](Context& c, bool on) { c.setDeterministicAlgorithms(c.deterministicAlgorithms(), on); }},
};

constexpr std::pair<at::Float32Backend, at::Float32Op> kPrecisions[] = {
    {at::Float32Backend::CUDA, at::Float32Op::MATMUL},
    {at::Float32Backend::CUDA, at::Float32Op::CONV},
    {at::Float32Backend::MKLDNN, at::Float32Op::MATMUL},
    {at::Float32Backend::MKLDNN, at::Float32Op::CONV}};

}  // namespace

GlobalFlags GlobalFlags::capture() {
  const Context& context = at::globalContext();
  GlobalFlags flags;
  std::uint32_t bit = 1;
  for (const Switch& one : kSwitches) {
    if (one.read(context)) flags.bits_ |= bit;
    bit <<= 1U;
  }
  for (std::size_t k = 0; k < flags.precisions_.size(); ++k) {
    flags.precisions_[k] = context.float32Precision(kPrecisions[k].first, kPrecisions[k].second);
  }
  flags.threads_ = at::get_num_threads();
  flags.default_type_ = c10::get_default_dtype_as_scalartype();
  return flags;
}

void GlobalFlags::apply() const {
  Context& context = at::globalContext();
  std::uint32_t bit = 1;
  for (const Switch& one : kSwitches) {
    const bool on = (bits_ & bit) != 0;
    if (one.read(context) != on) one.write(context, on);
    bit <<= 1U;
  }
  for (std::size_t k = 0; k < precisions_.size(); ++k) {
    const auto [backend, operation] = kPrecisions[k];
    if (context.float32Precision(backend, operation) != precisions_[k]) {
      context.setFloat32Precision(backend, operation, precisions_[k]);
    }
  }
  if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
  if (c10::get_default_dtype_as_scalartype() != default_type_) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(default_type_));
  }
}

}  // namespace pudica::hooks
