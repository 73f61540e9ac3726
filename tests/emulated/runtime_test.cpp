// The emulated runtime itself: memory and its limit, copies, streams, events, captures, cards.
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

using ::testing::Test;

class Runtime : public EmulatedTest {};

std::vector<unsigned char> pattern(std::size_t bytes) {
  std::vector<unsigned char> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(i * 131 + 7);
  return out;
}

TEST_F(Runtime, MallocTakesWholeGranulesAndFreeGivesThemBack) {
  const std::int64_t before = free_bytes();
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, static_cast<std::size_t>(3 * kMiB)), cudaSuccess);
  EXPECT_EQ(before - free_bytes(), 4 * kMiB);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(at) + 100), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cudaFree(at), cudaErrorInvalidValue) << "twice";
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(Runtime, AllThatIsFreeCanBeTakenAndNoMore) {
  const auto all = static_cast<std::size_t>(free_bytes() / (2 * kMiB) * (2 * kMiB));
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, all), cudaSuccess);
  void* more = nullptr;
  const std::uint64_t refused = counts().refused;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(counts().refused - refused, 1U);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "out of memory");
  ASSERT_EQ(cudaFree(at), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&more, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(Runtime, CopiesMoveBytesOfAnySizeAndPlace) {
  for (const std::size_t bytes : {1UL, 4095UL, 4096UL, 65536UL, 100'001UL, 3'000'003UL}) {
    const std::vector<unsigned char> sent = pattern(bytes);
    void* first = nullptr;
    void* second = nullptr;
    ASSERT_EQ(cudaMalloc(&first, bytes + 100), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&second, bytes + 100), cudaSuccess);
    // Off the boundaries of pages, by different distances.
    char* const from = static_cast<char*>(first) + 13;
    char* const to = static_cast<char*>(second) + 57;
    ASSERT_EQ(cudaMemcpy(from, sent.data(), bytes, cudaMemcpyDefault), cudaSuccess);
    ASSERT_EQ(cudaMemset(second, 0x55, bytes + 100), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
    std::vector<unsigned char> back(bytes);
    ASSERT_EQ(cudaMemcpy(back.data(), to, bytes, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(back, sent) << bytes;
    unsigned char beside[2] = {};
    ASSERT_EQ(cudaMemcpy(&beside[0], to - 1, 1, cudaMemcpyDefault), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(&beside[1], to + bytes, 1, cudaMemcpyDefault), cudaSuccess);
    EXPECT_EQ(beside[0], 0x55);
    EXPECT_EQ(beside[1], 0x55);
    EXPECT_EQ(cudaFree(first), cudaSuccess);
    EXPECT_EQ(cudaFree(second), cudaSuccess);
  }
}

TEST_F(Runtime, WhatWasNeverWrittenIsCopiedAsZerosOverWhatWas) {
  constexpr std::size_t kBytes = 8 << 20;
  char* empty = nullptr;
  char* full = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&empty), kBytes), cudaSuccess);
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&full), kBytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(full, 0x7F, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMemset(empty + 1'000'000, 0x11, 3), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(full + 5, empty + 7, kBytes - 7, cudaMemcpyDefault), cudaSuccess);
  std::vector<char> seen(kBytes);
  ASSERT_EQ(cudaMemcpy(seen.data(), full, kBytes, cudaMemcpyDefault), cudaSuccess);
  std::vector<char> expected(kBytes, 0);
  for (std::size_t i : {0UL, 1UL, 2UL, 3UL, 4UL, kBytes - 2, kBytes - 1}) expected[i] = 0x7F;
  for (std::size_t i = 0; i < 3; ++i) expected[1'000'000 - 2 + i] = 0x11;
  EXPECT_TRUE(seen == expected);
  EXPECT_EQ(cudaFree(empty), cudaSuccess);
  EXPECT_EQ(cudaFree(full), cudaSuccess);
}

TEST_F(Runtime, RowsAreCopiedByTheirPitch) {
  const std::vector<unsigned char> sent = pattern(60);
  std::vector<unsigned char> back(60, 0);
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 60), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(at, 20, sent.data(), 12, 5, 3, cudaMemcpyDefault, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), at, 60, cudaMemcpyDefault), cudaSuccess);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(std::memcmp(back.data() + 20 * row, sent.data() + 12 * row, 5), 0) << row;
    EXPECT_EQ(back[20 * row + 5], 0) << row;
  }
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

TEST_F(Runtime, AnEventTellsWhatItsStreamTookAndNotTheHost) {
  constexpr std::size_t kBytes = 250 << 20;
  void* at = nullptr;
  void* host = nullptr;
  ASSERT_EQ(cudaMalloc(&at, kBytes), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&host, kBytes), cudaSuccess);
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
  const double issued = host_us();
  ASSERT_EQ(cudaMemcpyAsync(at, host, kBytes, cudaMemcpyDefault, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_LT(host_us() - issued, 100) << "only the calls";
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float milliseconds = 0;
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  constexpr double kLinkGbS = 25;  // of an A100
  EXPECT_NEAR(milliseconds, 1e-6 * static_cast<double>(kBytes) / kLinkGbS, 0.01);
  EXPECT_GE(host_us() - issued, 1e3 * static_cast<double>(milliseconds) - 1) << "it waited";
  EXPECT_EQ(cudaEventDestroy(begin), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(Runtime, AStreamGoesOnWhenTheEventIsDone) {
  cudaStream_t slow = nullptr;
  cudaStream_t quick = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&quick, cudaStreamNonBlocking), cudaSuccess);
  cudaEvent_t begin = nullptr;
  cudaEvent_t done = nullptr;
  cudaEvent_t alone = nullptr;
  cudaEvent_t after = nullptr;
  for (cudaEvent_t* event : {&begin, &done, &alone, &after}) {
    ASSERT_EQ(cudaEventCreate(event), cudaSuccess);
  }
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 1 << 30), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(begin, slow), cudaSuccess);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(cudaMemsetAsync(at, 0, 1 << 30, slow), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(done, slow), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(alone, quick), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(quick, done, 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(after, quick), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float slow_ms = 0;
  float alone_ms = 0;
  float after_ms = 0;
  ASSERT_EQ(cudaEventElapsedTime(&slow_ms, begin, done), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&alone_ms, begin, alone), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&after_ms, begin, after), cudaSuccess);
  EXPECT_GT(slow_ms, 4) << "10 GiB at 2039 GB/s";
  EXPECT_LT(alone_ms, 0.1);
  EXPECT_GE(after_ms, slow_ms);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

TEST_F(Runtime, TheNullStreamWaitsForThoseThatDoNotIgnoreIt) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreate(&begin), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 1 << 30), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(begin, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(at, 0, 1 << 30, blocking), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(at, 0, 1, nullptr), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, nullptr), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  float milliseconds = 0;
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GT(milliseconds, 0.5) << "1 GiB at 2039 GB/s";
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

TEST_F(Runtime, AGraphCopiesWhenItIsLaunchedAndNotBefore) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  void* at = nullptr;
  ASSERT_EQ(cudaMalloc(&at, 64), cudaSuccess);
  ASSERT_EQ(cudaMemset(at, 1, 64), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(at, 2, 64, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t ready = nullptr;
  ASSERT_EQ(cudaGraphInstantiateWithFlags(&ready, graph, 0), cudaSuccess);
  unsigned char seen = 0;
  ASSERT_EQ(cudaMemcpy(&seen, at, 1, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(seen, 1);
  ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&seen, at, 1, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(cudaGraphExecDestroy(ready), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

TEST_F(Runtime, WhatACaptureForbidsFailsAndSpoilsIt) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  void* at = nullptr;
  EXPECT_EQ(cudaMalloc(&at, 1), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaMalloc(&at, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(at), cudaSuccess);
}

}  // namespace
}  // namespace pudica::testing
