#include "torch/operator_work.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace pudica::hooks {
namespace {

// Tenths of a byte for each byte written. Measured ratios, one core: normalisations and special
// functions take two to three times a copy.
constexpr std::int64_t kCopy = 15;
constexpr std::int64_t kSpecial = 30;
// For each element written and each element of the inner dimension of a product.
constexpr std::int64_t kProduct = 4;
// Inner dimensions that depend on the shape are taken as these.
constexpr std::int64_t kAttentionInner = 512;
constexpr std::int64_t kBatchedInner = 64;

constexpr std::array<std::string_view, 11> kSpecialNames{
    "gelu", "tanh", "exp", "erf", "sigmoid", "silu", "softplus", "pow", "sqrt", "softmax", "norm"};

bool is_special(std::string_view name) {
  return std::ranges::any_of(kSpecialNames, [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

// A tensor argument's size; 0 where there is none.
std::int64_t last_size(const Tape::Entry& entry, std::size_t argument) {
  if (argument >= entry.arguments.size() || !entry.arguments[argument].isTensor()) return 0;
  const at::Tensor& tensor = entry.arguments[argument].toTensor();
  return tensor.defined() && tensor.dim() > 0 ? tensor.size(-1) : 0;
}

// Multiplications for each element written, where the operator is a product of matrices.
std::int64_t inner_dimension(const Tape::Entry& entry) {
  const std::string_view name = entry.facts->name;
  if (name == "mm" || name == "linear") return last_size(entry, 0);
  if (name == "addmm" || name == "_addmm_activation") return last_size(entry, 1);
  if (name == "bmm" || name == "baddbmm" || name == "matmul") return kBatchedInner;
  if (name.find("attention") != std::string_view::npos) return kAttentionInner;
  if (name.find("convolution") != std::string_view::npos && entry.arguments.size() > 1 &&
      entry.arguments[1].isTensor()) {
    const at::Tensor& weight = entry.arguments[1].toTensor();
    return weight.numel() / std::max<std::int64_t>(1, weight.size(0));
  }
  return 0;
}

}  // namespace

std::int64_t work_of(const Tape::Entry& entry, const std::vector<Tape::Stored>& stored) {
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  const auto wrote = [&](std::int32_t storage) {
    const Tape::Stored& out = stored[static_cast<std::size_t>(storage)];
    if (out.bytes <= bytes) return;
    bytes = out.bytes;
    elements = out.bytes / std::max<std::int64_t>(1, out.item_bytes);
  };
  for (const Tape::Output& output : entry.outputs) wrote(output.storage);
  for (const Tape::Reference& reference : entry.references) {
    if (reference.written) wrote(reference.storage);
  }
  const std::int64_t inner = inner_dimension(entry);
  if (inner > 0) return kProduct * inner * elements + kCopy * bytes;
  return (is_special(entry.facts->name) ? kSpecial : kCopy) * bytes;
}

std::int64_t work_of_packing(std::int64_t bytes) { return 2 * kCopy * bytes; }

StorageSet made_of_parameters(const Tape& tape) {
  const auto& stored = tape.stored();
  StorageSet out(stored.size(), false);
  for (std::size_t k = 0; k < stored.size(); ++k) out[k] = stored[k].parameter;
  for (const Tape::Entry& entry : tape.entries()) {
    const bool all = !entry.references.empty() &&
                     std::ranges::all_of(entry.references, [&out](const Tape::Reference& read) {
                       return out[static_cast<std::size_t>(read.storage)];
                     });
    for (const Tape::Output& output : entry.outputs) {
      out[static_cast<std::size_t>(output.storage)] = all;
    }
    for (const Tape::Reference& reference : entry.references) {
      if (reference.written && !all) out[static_cast<std::size_t>(reference.storage)] = false;
    }
  }
  return out;
}

}  // namespace pudica::hooks
