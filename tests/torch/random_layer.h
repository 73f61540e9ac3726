// Layers that nobody would write: random operators on a few tensors of one shape, in place, through
// views, with several results, with noise, under no gradient. For property tests.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace pudica::testing {

class RandomLayer {
 public:
  static constexpr std::int64_t kColumns = 32;

  // `seed` tells everything. Autograd may refuse the layer: it writes over what its own backward
  // reads.
  explicit RandomLayer(std::uint64_t seed);

  // Two tensors (rows, kColumns), rows >= 4, the second for layers to pass on -> the same. Neither
  // is written. Parameters are leaves that require gradients. `variation`: other than kAsEver, one
  // operator gets its tensors the other way round, or another one runs in its place.
  static constexpr std::uint64_t kAsEver = 0;
  [[nodiscard]] std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                                std::uint64_t variation = kAsEver) const;
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // The operators in order, to be read where a test fails.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  using Tensors = std::vector<at::Tensor>;
  // Adds what it makes of two tensors, by number, at the end, or writes the first.
  struct Operator {
    std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)> make;  // null: writes
    std::function<void(const at::Tensor& a, const at::Tensor& b)> write;
    std::size_t a = 0;
    std::size_t b = 0;
  };

  std::size_t pick(std::size_t count);
  std::size_t pick_writable();
  void add_operator();

  std::mt19937_64 random_;
  Tensors parameters_;
  std::vector<Operator> operators_;
  std::vector<bool> writable_;        // by tensor: shares no bytes with an input
  std::vector<std::size_t> results_;  // of the first output, two; the second output
  std::string text_;
};

}  // namespace pudica::testing
