// Goal: a mistake in the order of streams is seen. Method: on a device that does its work when its
// stream gets there (PUDICA_EMULATED_ORDER=clock, or late) each pair of tests does something right,
// and the same with the mistake planted, whose bytes come out wrong or whose copy faults.
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>

#include "emulated/emulated_fixture.h"

namespace pudica::testing {
namespace {

constexpr std::size_t kBytes = 16 << 20;

class StreamOrder : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    first_ = new_stream();
    second_ = new_stream();
    device_ = static_cast<char*>(on_device(kBytes));
    other_ = static_cast<char*>(on_device(kBytes));
    for (char** host : {&sent_, &back_}) {
      void* at = nullptr;
      ASSERT_EQ(cudaMallocHost(&at, kBytes), cudaSuccess);
      *host = static_cast<char*>(at);
    }
    std::memset(sent_, 'a', kBytes);
    std::memset(back_, '-', kBytes);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  static void* on_device(std::size_t bytes) {
    void* at = nullptr;
    EXPECT_EQ(cudaMalloc(&at, bytes), cudaSuccess);
    return at;
  }
  static void copy(void* to, const void* from, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream), cudaSuccess);
  }
  static cudaEvent_t record(cudaStream_t stream) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    return event;
  }
  static bool is_all(const char* at, char value) {
    return *at == value && std::memcmp(at, at + 1, kBytes - 1) == 0;
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  char* device_ = nullptr;
  char* other_ = nullptr;
  char* sent_ = nullptr;
  char* back_ = nullptr;
};

TEST_F(StreamOrder, ACopyIsThereWhenItsEventIs) {
  copy(device_, sent_, first_);
  copy(back_, device_, first_);
  const cudaEvent_t done = record(first_);
  ASSERT_EQ(cudaEventSynchronize(done), cudaSuccess);
  EXPECT_TRUE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, ACopyThatIsUnderWayIsSeenInHalf) {
  copy(device_, sent_, first_);
  const cudaEvent_t begun = record(first_);
  copy(back_, device_, first_);
  ASSERT_EQ(cudaEventSynchronize(begun), cudaSuccess);
  EXPECT_EQ(back_[0], 'a');
  EXPECT_EQ(back_[kBytes - 1], '-');
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_TRUE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, AReadBeforeTheEventIsSeen) {
  copy(device_, sent_, first_);
  copy(back_, device_, first_);
  const cudaEvent_t done = record(first_);
  EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
  EXPECT_FALSE(is_all(back_, 'a'));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(StreamOrder, WhoAsksAgainAndAgainComesToAnEnd) {
  copy(device_, sent_, first_);
  copy(back_, device_, first_);
  const cudaEvent_t done = record(first_);
  int asked = 0;
  for (; cudaEventQuery(done) == cudaErrorNotReady && asked < 1'000'000; ++asked) {
  }
  EXPECT_GT(asked, 0);
  EXPECT_LT(asked, 1'000'000);
  EXPECT_TRUE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, TheDeviceWorksWhileTheHostDoesSomethingElse) {
  copy(device_, sent_, first_);
  const cudaEvent_t done = record(first_);
  constexpr double kTenSeconds = 1e7;
  spend(kTenSeconds);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);
}

TEST_F(StreamOrder, AStreamThatWaitsReadsWhatTheOtherWrote) {
  copy(device_, sent_, first_);
  ASSERT_EQ(cudaStreamWaitEvent(second_, record(first_), 0), cudaSuccess);
  copy(back_, device_, second_);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_TRUE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, AMissingWaitIsSeen) {
  ASSERT_EQ(cudaMemset(device_, 'x', kBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  copy(device_, sent_, first_);
  copy(other_, device_, second_);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  copy(back_, other_, second_);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_FALSE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, ABufferThatIsWrittenBehindTheCopyOutOfItIsSafe) {
  ASSERT_EQ(cudaMemset(device_, 'x', kBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  copy(back_, device_, first_);
  ASSERT_EQ(cudaStreamWaitEvent(second_, record(first_), 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device_, 'y', kBytes, second_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(is_all(back_, 'x'));
}

TEST_F(StreamOrder, ABufferReusedTooEarlyIsSeen) {
  ASSERT_EQ(cudaMemset(device_, 'x', kBytes), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  copy(other_, sent_, first_);  // so that it is at work for a while
  copy(back_, device_, first_);
  ASSERT_EQ(cudaMemsetAsync(device_, 'y', kBytes, second_), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_FALSE(is_all(back_, 'x'));
}

TEST_F(StreamOrder, APinnedSourceThatIsChangedTooEarlyIsSeen) {
  copy(device_, sent_, first_);
  std::memset(sent_, 'z', kBytes);
  copy(back_, device_, first_);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_FALSE(is_all(back_, 'a'));
}

TEST_F(StreamOrder, APageableSourceMayBeChangedAtOnce) {
  std::vector<char> source(kBytes, 'p');
  copy(device_, source.data(), first_);
  std::memset(source.data(), 'z', kBytes);
  copy(back_, device_, first_);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_TRUE(is_all(back_, 'p'));
}

TEST_F(StreamOrder, ACopyToPageableMemoryIsWaitedFor) {
  std::vector<char> target(kBytes, '-');
  copy(device_, sent_, first_);
  copy(target.data(), device_, first_);
  EXPECT_TRUE(is_all(target.data(), 'a'));
}

TEST_F(StreamOrder, TheProgramsOwnFunctionIsCalledWhenItsStreamGetsThere) {
  static bool there = false;
  copy(device_, sent_, first_);
  copy(back_, device_, first_);
  const auto look = [](void* back) {
    const auto* at = static_cast<const char*>(back);
    there = at[0] == 'a' && at[kBytes - 1] == 'a';
    int device = -1;
    cudaGetDevice(&device);
  };
  ASSERT_EQ(cudaLaunchHostFunc(first_, look, back_), cudaSuccess);
  EXPECT_FALSE(there);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_TRUE(there);
}

TEST_F(StreamOrder, WhatIsFreedBehindItsLastUseIsHeldUntilThen) {
  const std::int64_t before = free_bytes();
  copy(other_, device_, first_);
  ASSERT_EQ(cudaFreeAsync(device_, first_), cudaSuccess);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(free_bytes(), before + static_cast<std::int64_t>(kBytes));
}

TEST_F(StreamOrder, WhatIsFreedBeforeItsLastUseFaultsForGood) {
  copy(other_, sent_, first_);
  copy(back_, device_, first_);
  ASSERT_EQ(cudaFreeAsync(device_, second_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorIllegalAddress);
  void* at = nullptr;
  EXPECT_EQ(cudaMalloc(&at, 1), cudaErrorIllegalAddress);
  EXPECT_FALSE(is_all(back_, 'a'));
}

using StreamOrderDeathTest = StreamOrder;

TEST_F(StreamOrderDeathTest, WhoTouchesWhatWasFreedEnds) {
  ASSERT_EQ(cudaFree(device_), cudaSuccess);
  const auto* gone = static_cast<volatile char*>(device_);
  EXPECT_DEATH(static_cast<void>(*gone), "");
}

}  // namespace
}  // namespace pudica::testing
