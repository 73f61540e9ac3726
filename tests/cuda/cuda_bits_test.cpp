// Bits on a CUDA device: the host's own words, every byte back, or refused; selective modes that
// hold masks so give the same gradients.
#include <limits>

#include <c10/cuda/CUDAGuard.h>
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

void expect_round_trip(const at::Tensor& host, hooks::Contents contents = hooks::Contents::kAny) {
  const auto item_bytes = static_cast<std::int64_t>(host.element_size());
  const at::Tensor there = host.to(at::kCUDA);
  const auto bits = encode_bits(there.storage(), item_bytes, contents);
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
    expect_round_trip(at::empty({count}, at::kBool).bernoulli_(0.5), hooks::Contents::kTruthValues);
    expect_round_trip(at::full({count}, -3.5));
  }
  expect_round_trip(at::full({70}, -0.0));
  expect_round_trip(at::full({70}, std::numeric_limits<double>::quiet_NaN(), at::kFloat));
  const auto bits = encode_bits(at::zeros({1000}).to(device_).storage(), 4);
  ASSERT_TRUE(bits.has_value());
  EXPECT_EQ(bits->packed.narrow(0, 0, 16).cpu().count_nonzero().item<std::int64_t>(), 0);
}

// The device's answer would be that there is no value but 0.
TEST_F(CudaTest, BitsOfTruthValuesAreNotWaitedFor) {
  const at::Tensor none = at::zeros({100'003}, at::kBool).to(device_);
  const auto asked = encode_bits(none.storage(), 1);
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->value, 0U);
  const auto known = encode_bits(none.storage(), 1, hooks::Contents::kTruthValues);
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->value, 1U);
}

// It is read later than its own stream knows, and its memory is asked for there.
TEST_F(CudaTest, BitsOfAMaskFromAnotherStreamAreReadBeforeItsMemoryIsUsedAgain) {
  constexpr std::int64_t kCount = 1 << 22;
  const auto pinned = [] { return at::TensorOptions().dtype(at::kBool).pinned_memory(true); };
  const at::Tensor host = at::empty({kCount}, pinned()).bernoulli_(0.5);
  const at::Tensor none = at::zeros({kCount}, pinned());
  const auto own = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
  at::Tensor mask;
  {
    const c10::cuda::CUDAStreamGuard guard(own);
    mask = host.to(device_, /*non_blocking=*/true);
  }
  own.synchronize();
  const auto bits = encode_bits(mask.storage(), 1, hooks::Contents::kTruthValues);
  ASSERT_TRUE(bits.has_value());
  mask = at::Tensor();
  {
    const c10::cuda::CUDAStreamGuard guard(own);
    const at::Tensor again = none.to(device_, /*non_blocking=*/true);
    own.synchronize();
  }
  const at::Tensor back = at::empty({0}, at::TensorOptions().dtype(at::kBool).device(device_))
                              .set_(decode_bits(*bits), 0, {kCount});
  EXPECT_TRUE(at::equal(host, back.cpu()));
}

TEST_F(CudaTest, BitsRefuseAThirdValueWhereverItStands) {
  for (const std::int64_t at : {0, 63, 64, 4096, 9'999'999}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kChar}) {
      at::Tensor host = at::zeros({10'000'000}, type);
      host[(at + 17) % 10'000'000] = 1;
      EXPECT_TRUE(encode_bits(host.to(device_).storage(), host.element_size()).has_value()) << at;
      host[at] = 2;
      EXPECT_FALSE(encode_bits(host.to(device_).storage(), host.element_size()).has_value()) << at;
    }
  }
  EXPECT_FALSE(encode_bits(at::zeros({8}, at::kDouble).to(device_).storage(), 8));
}

TEST_F(CudaTest, BitsAreReadBehindWhatTheStreamStillWrites) {
  const at::Tensor none = at::zeros({1 << 24}).pin_memory();
  const at::Tensor host = at::empty({1 << 24}).bernoulli_(0.5).pin_memory();
  for (int round = 0; round < 5; ++round) {
    at::Tensor mask = none.to(device_, /*non_blocking=*/true);
    mask.copy_(host, /*non_blocking=*/true);
    const auto bits = encode_bits(mask.storage(), 4);
    mask.copy_(none, /*non_blocking=*/true);
    ASSERT_TRUE(bits.has_value());
    at::Tensor back = at::empty({0}, on_device()).set_(decode_bits(*bits), 0, mask.sizes());
    EXPECT_TRUE(at::equal(host, back.cpu()));
  }
}

class SelectiveCudaTest : public CudaTest {
 protected:
  // Steps with a tape first and then with each mode of the menu that its layers have.
  std::vector<Result> selective_steps() {
    auto taped = options();
    taped.tapes = std::make_shared<hooks::ClassTapes>();
    std::vector<Result> results{step(taped)};
    menu_ = taped.tapes->menu();
    for (std::size_t k = 0; menu_ && k < menu_->steps.size(); ++k) {
      taped.menu_step = static_cast<std::int32_t>(k);
      results.push_back(step(taped));
    }
    return results;
  }

  std::shared_ptr<const hooks::ClassMenu> menu_;
};

TEST_F(SelectiveCudaTest, SelectiveModesWithBitsNeedLess) {
  step(options());
  const Result kept = step(options());
  const std::vector<Result> results = selective_steps();
  ASSERT_NE(menu_, nullptr);
  ASSERT_FALSE(menu_->steps.empty());
  bool packs = false;
  for (std::size_t k = 0; k < menu_->steps.size(); ++k) {
    packs = packs || !menu_->steps[k].packed.empty();
    EXPECT_LT(results[k + 1].peak_bytes, kept.peak_bytes) << k;
  }
  EXPECT_TRUE(packs) << "dropout's masks";
}

TEST_F(SelectiveCudaTest, SelectiveModesWithBitsGiveTheSame) {
  PUDICA_NEEDS_VALUES();
  const Result kept = step(options());
  for (const Result& result : selective_steps()) expect_equal(kept, result);
}

}  // namespace
}  // namespace pudica::testing
