// Bits on a CUDA device: the host's own words, every byte back, or refused; selective modes that
// hold masks so give the same gradients.
#include <limits>

#include <c10/cuda/CUDAStream.h>

#include "cuda/cuda_fixture.h"
#include "torch/bits.h"
#include "torch/class_menu.h"

namespace pudica::testing {
namespace {

using hooks::decode_bits;
using hooks::encode_bits;

at::Tensor noise(std::int64_t count, at::ScalarType type) {
  return at::empty({count}, type).bernoulli_(0.9).div_(0.9);
}

void expect_round_trip(const at::Tensor& host) {
  const auto item_bytes = static_cast<std::int64_t>(host.element_size());
  const at::Tensor there = host.to(at::kCUDA);
  const auto bits = encode_bits(there.storage(), item_bytes);
  ASSERT_TRUE(bits.has_value()) << host.numel();
  const auto expected = encode_bits(host.storage(), item_bytes);
  ASSERT_TRUE(expected.has_value());
  const std::int64_t words = expected->packed.numel();
  EXPECT_TRUE(at::equal(bits->packed.narrow(0, 0, words).cpu(), expected->packed));
  const at::Tensor bytes =
      at::empty({0}, at::TensorOptions().dtype(at::kByte).device(there.device()))
          .set_(decode_bits(*bits), 0, {bits->bytes});
  const at::Tensor back = bytes.cpu();
  ASSERT_EQ(back.nbytes(), host.nbytes());
  EXPECT_EQ(std::memcmp(back.const_data_ptr(), host.const_data_ptr(), host.nbytes()), 0);
}

TEST_F(CudaTest, BitsGiveTwoValuedTensorsBack) {
  for (const std::int64_t count : {1, 7, 63, 64, 65, 1000, 100'003, 40'000'000}) {
    expect_round_trip(noise(count, at::kFloat));
    expect_round_trip(noise(count, at::kBFloat16));
    expect_round_trip(at::empty({count}, at::kBool).bernoulli_(0.5));
    expect_round_trip(at::full({count}, -3.5));
  }
  expect_round_trip(at::full({70}, -0.0));
  expect_round_trip(at::full({70}, std::numeric_limits<double>::quiet_NaN(), at::kFloat));
  const at::Tensor zeros = at::zeros({1000}, on_device());
  const auto bits = encode_bits(zeros.storage(), 4);
  ASSERT_TRUE(bits.has_value());
  EXPECT_EQ(bits->packed.narrow(0, 0, 16).count_nonzero().item<std::int64_t>(), 0);
}

TEST_F(CudaTest, BitsRefuseAThirdValueWhereverItStands) {
  for (const std::int64_t at : {0, 63, 64, 4096, 9'999'999}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kChar}) {
      at::Tensor tensor = at::zeros({10'000'000}, on_device().dtype(type));
      tensor[(at + 17) % 10'000'000] = 1;
      tensor[at] = 2;
      EXPECT_FALSE(encode_bits(tensor.storage(), tensor.element_size()).has_value()) << at;
    }
  }
  EXPECT_FALSE(encode_bits(at::zeros({8}, on_device().dtype(at::kDouble)).storage(), 8));
}

TEST_F(CudaTest, BitsAreReadBehindWhatTheStreamStillWrites) {
  for (int round = 0; round < 20; ++round) {
    at::Tensor mask = at::zeros({1 << 24}, on_device());
    mask.bernoulli_(0.5);
    const auto bits = encode_bits(mask.storage(), 4);
    ASSERT_TRUE(bits.has_value());
    at::Tensor back = at::empty({0}, on_device()).set_(decode_bits(*bits), 0, mask.sizes());
    EXPECT_TRUE(at::equal(mask, back));
  }
}

TEST_F(CudaTest, SelectiveModesWithBitsGiveTheSame) {
  step(options());
  const Result kept = step(options());
  auto taped = options();
  taped.tapes = std::make_shared<hooks::ClassTapes>();
  expect_equal(kept, step(taped));
  const auto menu = taped.tapes->menu();
  ASSERT_NE(menu, nullptr);
  bool packs = false;
  for (std::size_t k = 0; k < menu->steps.size(); ++k) {
    packs = packs || !menu->steps[k].packed.empty();
    taped.menu_step = static_cast<std::int32_t>(k);
    const Result selective = step(taped);
    expect_equal(kept, selective);
    EXPECT_LT(selective.peak_bytes, kept.peak_bytes) << k;
  }
  EXPECT_TRUE(packs) << "dropout's masks";
}

}  // namespace
}  // namespace pudica::testing
