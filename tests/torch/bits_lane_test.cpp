// What one thread of a CUDA device does, run by the host: the same bits as the host's own code.
#include "cuda/bits_lane.h"

#include <cstring>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "torch/bits.h"

namespace pudica::hooks {
namespace {

constexpr std::int64_t kGroupsOfWord = 4;

template <typename Word>
struct Packed {
  std::vector<std::uint16_t> bits;
  Word value = 0;
  bool strange = false;
};

// Every `threads`-th group by one thread, as the kernel shares them out.
template <typename Word>
Packed<Word> pack_all(const Word* in, std::int64_t count, std::int64_t threads, bool aligned) {
  const std::int64_t groups = (count + 63) / 64 * kGroupsOfWord;
  Packed<Word> all;
  all.bits.resize(static_cast<std::size_t>(groups));
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    Word value = 0;
    for (std::int64_t group = thread; group < groups; group += threads) {
      const auto elements = lane::load(in, count, group, aligned);
      all.bits[static_cast<std::size_t>(group)] = lane::pack(elements, value, all.strange);
    }
    if (value == 0) continue;
    all.strange = all.strange || (all.value != 0 && all.value != value);
    all.value = value;
  }
  return all;
}

template <typename Word>
struct Host {
  static at::ScalarType type() {
    return sizeof(Word) == 1 ? at::kByte : sizeof(Word) == 2 ? at::kShort : at::kInt;
  }
  // Memory from torch, aligned to 64 bytes.
  explicit Host(std::int64_t count) : tensor(at::zeros({count}, type())) {}
  [[nodiscard]] Word* data() const { return static_cast<Word*>(tensor.data_ptr()); }
  at::Tensor tensor;
};

template <typename Word>
class BitsLane : public ::testing::Test {};
using Words = ::testing::Types<std::uint8_t, std::uint16_t, std::uint32_t>;
TYPED_TEST_SUITE(BitsLane, Words);

TYPED_TEST(BitsLane, GivesTheHostsOwnBitsAndTheSameBack) {
  std::mt19937_64 random(3);
  for (const std::int64_t count : {1, 15, 16, 17, 63, 64, 65, 1000, 4096, 10'007}) {
    Host<TypeParam> host(count);
    const auto value = static_cast<TypeParam>(0xB9C7D3A5U);
    for (std::int64_t i = 0; i < count; ++i) host.data()[i] = random() % 10 < 9 ? value : 0;
    const auto expected = encode_bits(host.tensor.storage(), sizeof(TypeParam));
    ASSERT_TRUE(expected.has_value());
    for (const std::int64_t threads : {1, 7, 256}) {
      const auto packed = pack_all(host.data(), count, threads, /*aligned=*/true);
      EXPECT_FALSE(packed.strange);
      ASSERT_EQ(packed.bits.size() * 2, expected->packed.nbytes());
      EXPECT_EQ(0, std::memcmp(packed.bits.data(), expected->packed.const_data_ptr(),
                               expected->packed.nbytes()));
      std::vector<TypeParam> back(static_cast<std::size_t>(count) + 1, 42);
      for (std::int64_t group = 0; group < (count + 15) / 16; ++group) {
        const auto elements =
            lane::unpack(packed.bits[static_cast<std::size_t>(group)], packed.value);
        lane::store(elements, back.data(), count, group, /*aligned=*/false);
      }
      EXPECT_EQ(0, std::memcmp(back.data(), host.data(), host.tensor.nbytes()));
      EXPECT_EQ(back.back(), 42) << "written beyond the end";
    }
  }
}

TYPED_TEST(BitsLane, MemoryThatIsNotAligned) {
  constexpr std::int64_t kCount = 100;
  Host<TypeParam> host(kCount + 1);
  for (std::int64_t i = 0; i < kCount; i += 3) host.data()[i + 1] = 9;
  const auto packed = pack_all(host.data() + 1, kCount, 3, /*aligned=*/false);
  EXPECT_FALSE(packed.strange);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const std::uint32_t group = packed.bits[static_cast<std::size_t>(i / 16)];
    EXPECT_EQ(group >> static_cast<unsigned>(i % 16) & 1U, i % 3 == 0 ? 1U : 0U) << i;
  }
}

TYPED_TEST(BitsLane, AThirdValueIsSeenWhereverItStands) {
  constexpr std::int64_t kCount = 1000;
  for (const std::int64_t at : {0, 15, 16, 63, 64, 500, 999}) {
    Host<TypeParam> host(kCount);
    host.data()[(at + 17) % kCount] = 1;
    EXPECT_FALSE(pack_all(host.data(), kCount, 256, true).strange);
    host.data()[at] = 2;
    for (const std::int64_t threads : {1, 7, 256}) {
      EXPECT_TRUE(pack_all(host.data(), kCount, threads, true).strange) << at << ' ' << threads;
    }
  }
}

}  // namespace
}  // namespace pudica::hooks
