// Bits give every byte back, or refuse.
#include "torch/bits.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

void expect_round_trip(const at::Tensor& tensor) {
  const auto bits = encode_bits(tensor.storage(), static_cast<std::int64_t>(tensor.element_size()));
  ASSERT_TRUE(bits.has_value()) << tensor.numel();
  const c10::Storage back = decode_bits(*bits);
  ASSERT_EQ(back.nbytes(), tensor.nbytes());
  EXPECT_EQ(std::memcmp(back.data(), tensor.const_data_ptr(), tensor.nbytes()), 0);
}

at::Tensor noise(std::int64_t count, at::ScalarType type) {
  return at::empty({count}, type).bernoulli_(0.9).div_(0.9);
}

TEST(Bits, GiveTwoValuedTensorsBack) {
  for (const std::int64_t count : {1, 7, 63, 64, 65, 127, 128, 1000, 4096, 100'003}) {
    expect_round_trip(noise(count, at::kFloat));
    expect_round_trip(noise(count, at::kBFloat16));
    expect_round_trip(noise(count, at::kHalf));
    expect_round_trip(at::empty({count}, at::kBool).bernoulli_(0.5));
    expect_round_trip(at::zeros({count}));
    expect_round_trip(at::full({count}, -3.5));
  }
}

TEST(Bits, RefuseAThirdValueWhereverItStands) {
  for (const std::int64_t at : {0, 5, 63, 64, 4095, 4096, 9999}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kChar}) {
      at::Tensor tensor = at::zeros({10'000}, type);
      tensor[(at + 17) % 10'000] = 1;
      tensor[at] = 2;
      EXPECT_FALSE(encode_bits(tensor.storage(), tensor.element_size()).has_value()) << at;
    }
  }
}

TEST(Bits, NegativeZeroIsAValueOfItsOwn) {
  at::Tensor tensor = at::zeros({200});
  tensor[3] = 1.0;
  tensor[150] = -0.0;
  EXPECT_FALSE(encode_bits(tensor.storage(), 4).has_value());
  expect_round_trip(at::full({70}, -0.0));
  expect_round_trip(at::full({70}, std::numeric_limits<double>::quiet_NaN()));
}

TEST(Bits, TellWhetherBothValuesAreThere) {
  const auto both = [](const at::Tensor& tensor) {
    return has_both_values(encode_bits(tensor.storage(), tensor.element_size()).value());
  };
  at::Tensor tensor = at::zeros({1000});
  EXPECT_FALSE(both(tensor));
  tensor[900] = 0.5;
  EXPECT_TRUE(both(tensor));
  tensor.fill_(0.5);
  EXPECT_FALSE(both(tensor));
  tensor[3] = 0;
  EXPECT_TRUE(both(tensor));
  EXPECT_FALSE(both(at::full({7}, true))) << "less than a word is too little";
}

TEST(Bits, RefuseOtherItemSizes) {
  EXPECT_FALSE(encode_bits(at::zeros({8}, at::kDouble).storage(), 8).has_value());
  EXPECT_FALSE(encode_bits(at::empty({0}).storage(), 4).has_value());
}

}  // namespace
}  // namespace pudica::hooks
