#include "torch/new_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "torch/meter.h"

namespace pudica::hooks {
namespace {

constexpr std::int64_t kLargestElement = 16;  // bytes, of a complex double

MemoryPattern& this_thread() {
  static thread_local MemoryPattern pattern = MemoryPattern::kNone;
  return pattern;
}

bool shows(const char* element, std::size_t bytes, MemoryPattern pattern) {
  return std::all_of(element, element + bytes, [pattern](char byte) {
    return static_cast<std::uint8_t>(byte) == static_cast<std::uint8_t>(pattern);
  });
}

// Not of one that only stands for another (torch's FakeTensorMode): there is nothing to compare.
bool has_data(const at::Tensor& tensor) {
  return !tensor.is_cpu() || tensor.const_data_ptr() != nullptr;
}

bool written_same_on_cpu(const at::Tensor& forward, const at::Tensor& again) {
  const auto* const a = static_cast<const char*>(forward.const_data_ptr());
  const auto* const b = static_cast<const char*>(again.const_data_ptr());
  const auto bytes = static_cast<std::size_t>(forward.nbytes());
  const auto item = static_cast<std::size_t>(forward.element_size());
  for (std::size_t at = 0; at < bytes; at += item) {
    if (std::memcmp(a + at, b + at, item) == 0) continue;
    const bool unwritten =
        shows(a + at, item, MemoryPattern::kForward) && shows(b + at, item, MemoryPattern::kAgain);
    if (!unwritten) return false;
  }
  return true;
}

// The integers that elements of `bytes` are read as: no arithmetic of theirs has a NaN.
at::ScalarType word_of(std::size_t bytes) {
  switch (bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

// Of contiguous tensors.
bool same_words(const at::Tensor& left, const at::Tensor& right) {
  if (!has_data(left) || !has_data(right)) return false;
  if (left.is_cpu()) {
    const auto bytes = static_cast<std::size_t>(left.nbytes());
    return std::memcmp(left.const_data_ptr(), right.const_data_ptr(), bytes) == 0;
  }
  const at::ScalarType word = word_of(static_cast<std::size_t>(left.element_size()));
  return at::equal(left.flatten().view(word), right.flatten().view(word));
}

std::int64_t word_showing(MemoryPattern pattern, std::size_t bytes) {
  const auto byte = static_cast<std::uint8_t>(pattern);
  std::array<unsigned char, sizeof(std::int64_t)> word{};
  word.fill(byte);
  std::int64_t all = 0;
  std::memcpy(&all, word.data(), word.size());
  switch (bytes) {
    case 1:
      return byte;
    case 2:
      return static_cast<std::int16_t>(all);
    case 4:
      return static_cast<std::int32_t>(all);
    default:
      return all;
  }
}

bool written_same_on_device(const at::Tensor& forward, const at::Tensor& again) {
  const auto item = static_cast<std::size_t>(forward.element_size());
  const at::Tensor a = forward.flatten().view(word_of(item));
  const at::Tensor b = again.flatten().view(word_of(item));
  const at::Tensor unwritten = a.eq(word_showing(MemoryPattern::kForward, item))
                                   .logical_and_(b.eq(word_showing(MemoryPattern::kAgain, item)));
  return a.eq(b).logical_or_(unwritten).all().item<bool>();
}

}  // namespace

MemoryPattern pattern_of_new_memory() { return this_thread(); }

PatternGuard::PatternGuard(MemoryPattern pattern) : before_(this_thread()) {
  cpu_meter();  // its allocator is what does it
  this_thread() = pattern;
}

PatternGuard::~PatternGuard() { this_thread() = before_; }

namespace {

// What a sparse tensor is made of; empty: nobody knows how it is made.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return {tensor._indices(), tensor._values()};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default:
      return {};
  }
}

bool same_parts(const at::Tensor& left, const at::Tensor& right) {
  if (left.layout() != right.layout() || left.sizes() != right.sizes()) return false;
  const std::vector<at::Tensor> own = parts_of(left);
  return !own.empty() && std::ranges::equal(own, parts_of(right), same_bits);
}

}  // namespace

bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  if (left.layout() != at::kStrided || right.layout() != at::kStrided) {
    return same_parts(left, right);
  }
  if (left.sizes() != right.sizes() || left.element_size() > kLargestElement) return false;
  const PatternGuard plain(MemoryPattern::kNone);
  const at::NoGradGuard no_grad;
  return left.numel() == 0 || same_words(left.contiguous(), right.contiguous());
}

bool same_where_written(const at::Tensor& forward, const at::Tensor& again) {
  if (forward.layout() != at::kStrided || again.layout() != at::kStrided) {
    return same_parts(forward, again);
  }
  if (forward.sizes() != again.sizes() || forward.element_size() > kLargestElement) return false;
  const PatternGuard plain(MemoryPattern::kNone);
  const at::NoGradGuard no_grad;
  const at::Tensor a = forward.contiguous();
  const at::Tensor b = again.contiguous();
  if (a.numel() == 0 || same_words(a, b)) return true;
  if (!has_data(a) || !has_data(b)) return false;
  return a.is_cpu() ? written_same_on_cpu(a, b) : written_same_on_device(a, b);
}

}  // namespace pudica::hooks
