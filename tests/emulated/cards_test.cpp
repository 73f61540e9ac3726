// What a program sees of the card that PUDICA_EMULATED_CARD names: run once for each.
#include <cstdlib>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime_api.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

class Cards : public EmulatedTest {};

struct Expected {
  int major;
  int minor;
  int processors;
  double least_gib;
  double most_gib;
};

// As the manufacturer sells them; less is there than that, and not much less.
const std::map<std::string, Expected> kExpected = {
    {"T4", {7, 5, 40, 14.5, 15}},      {"V100", {7, 0, 80, 15.5, 16}},
    {"V100-32", {7, 0, 80, 31.5, 32}}, {"RTX4090", {8, 9, 128, 23, 24}},
    {"A100-40", {8, 0, 108, 39, 40}},  {"A100-80", {8, 0, 108, 79, 80}},
    {"H100", {9, 0, 132, 79, 80}},     {"H200", {9, 0, 132, 139, 141}},
};

TEST_F(Cards, AreWhatTheyAreNamed) {
  const char* name = std::getenv("PUDICA_EMULATED_CARD");
  ASSERT_NE(name, nullptr);
  const Expected expected = kExpected.at(name);
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(0);
  EXPECT_EQ(properties->major, expected.major);
  EXPECT_EQ(properties->minor, expected.minor);
  EXPECT_EQ(properties->multiProcessorCount, expected.processors);
  const auto total = static_cast<double>(properties->totalGlobalMem) / static_cast<double>(kGiB);
  EXPECT_GE(total, expected.least_gib);
  EXPECT_LE(total, expected.most_gib);
  const auto context = static_cast<std::int64_t>(properties->totalGlobalMem) - free_bytes();
  EXPECT_GE(context, 100 * kMiB);
  EXPECT_LE(context, 600 * kMiB);
}

// Its own attention among it: at capability 9.0 torch would take cuDNN's, which is not there.
TEST_F(Cards, RunALayerForwardAndBackward) {
  const auto there = at::TensorOptions().device(at::kCUDA).dtype(at::kHalf);
  const at::Tensor x = at::randn({2, 8, 128, 64}, there).set_requires_grad(true);
  const at::Tensor weight = at::randn({64, 64}, there).set_requires_grad(true);
  const at::Tensor q = at::matmul(x, weight);
  const at::Tensor out = at::scaled_dot_product_attention(q, q, q);
  const auto before = counts();
  out.to(at::kFloat).pow(2).mean().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  EXPECT_GT(counts().launches, before.launches);
  EXPECT_GT(counts().products, before.products);
}

// Sorts its words by a library that chooses its kernels by the card.
TEST_F(Cards, RunAnEmbeddingsBackward) {
  const auto there = at::TensorOptions().device(at::kCUDA);
  const at::Tensor weight = at::zeros({100, 16}, there).set_requires_grad(true);
  const at::Tensor words = at::zeros({8, 512}, there.dtype(at::kLong));
  at::embedding(weight, words).pow(2).mean().backward();
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
}

}  // namespace
}  // namespace pudica::testing
