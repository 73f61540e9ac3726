// Goal: what is ordered by events comes out right, however the device lags: no false alarm. Method:
// random copies and sets of random buffers on random streams, each behind the ones that it
// conflicts with, against the same done one after the other on the host. Then the same with every
// wait left out: some of those must come out wrong, or the test proves nothing.
#include <array>
#include <random>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

constexpr std::size_t kBuffers = 6;
constexpr std::size_t kStreams = 4;
constexpr std::size_t kBytes = 40'000;

class RandomOrder : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (cudaStream_t& stream : streams_) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    // The last two are pinned.
    for (std::size_t i = 0; i < kBuffers; ++i) {
      void** at = reinterpret_cast<void**>(&buffers_[i]);
      const bool pinned = i + 2 >= kBuffers;
      ASSERT_EQ(pinned ? cudaMallocHost(at, kBytes) : cudaMalloc(at, kBytes), cudaSuccess);
    }
  }

  struct Use {
    cudaEvent_t done;
    bool writes;
  };

  // The stream goes on behind all earlier uses of the buffer that conflict with this one.
  void use(std::size_t buffer, bool writes, cudaStream_t stream) {
    for (const Use& earlier : uses_[buffer]) {
      const bool conflicts = writes || earlier.writes;
      if (conflicts && waits_) {
        ASSERT_EQ(cudaStreamWaitEvent(stream, earlier.done, 0), cudaSuccess);
      }
    }
  }
  void used(std::size_t buffer, bool writes, cudaEvent_t done) {
    uses_[buffer].push_back({done, writes});
  }

  void act(std::mt19937& random) {
    cudaStream_t stream = streams_[random() % kStreams];
    const std::size_t to = random() % kBuffers;
    const std::size_t from = random() % kBuffers;
    const auto value = static_cast<char>(random() % 128);
    const bool sets = to == from || random() % 3 == 0;
    use(to, true, stream);
    if (!sets) use(from, false, stream);
    if (sets) {
      ASSERT_EQ(cudaMemsetAsync(buffers_[to], value, kBytes, stream), cudaSuccess);
      expected_[to].assign(kBytes, value);
    } else {
      ASSERT_EQ(cudaMemcpyAsync(buffers_[to], buffers_[from], kBytes, cudaMemcpyDefault, stream),
                cudaSuccess);
      expected_[to] = expected_[from];
    }
    cudaEvent_t done = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(done, stream), cudaSuccess);
    used(to, true, done);
    if (!sets) used(from, false, done);
  }

  // Whether all buffers are in the end what they would be one after the other.
  bool comes_out_right(unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < kBuffers; ++i) {
      uses_[i].clear();
      expected_[i].assign(kBytes, static_cast<char>(i));
      EXPECT_EQ(cudaMemset(buffers_[i], static_cast<int>(i), kBytes), cudaSuccess);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < 60; ++i) act(random);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    bool right = true;
    std::vector<char> seen(kBytes);
    for (std::size_t i = 0; i < kBuffers; ++i) {
      EXPECT_EQ(cudaMemcpy(seen.data(), buffers_[i], kBytes, cudaMemcpyDefault), cudaSuccess);
      right = right && seen == expected_[i];
    }
    return right;
  }

  std::array<cudaStream_t, kStreams> streams_{};
  std::array<char*, kBuffers> buffers_{};
  std::array<std::vector<char>, kBuffers> expected_;
  std::array<std::vector<Use>, kBuffers> uses_;
  bool waits_ = true;
};

TEST_F(RandomOrder, WhatWaitsForWhatItConflictsWithComesOutRight) {
  for (unsigned seed = 0; seed < 200; ++seed) EXPECT_TRUE(comes_out_right(seed)) << seed;
}

TEST_F(RandomOrder, WhatWaitsForNothingDoesNot) {
  waits_ = false;
  int wrong = 0;
  for (unsigned seed = 0; seed < 200; ++seed) wrong += comes_out_right(seed) ? 0 : 1;
  EXPECT_GT(wrong, 190);
}

}  // namespace
}  // namespace pudica::testing
