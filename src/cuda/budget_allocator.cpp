#include "cuda/budget_allocator.h"

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "torch/new_memory.h"

namespace pudica::hooks {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

void fill(void* block, std::size_t bytes, cudaStream_t stream) {
  const MemoryPattern pattern = pattern_of_new_memory();
  if (pattern == MemoryPattern::kNone || block == nullptr) return;
  C10_CUDA_CHECK(cudaMemsetAsync(block, static_cast<int>(pattern), bytes, stream));
}

class BudgetAllocator final : public TorchAllocator {
 public:
  explicit BudgetAllocator(TorchAllocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr block = under_cap(bytes, [&] { return inner_.allocate(bytes); });
    fill(block.get(), bytes, c10::cuda::getCurrentCUDAStream());
    return block;
  }
  void* raw_alloc(std::size_t bytes) override {
    void* const block = under_cap(bytes, [&] { return inner_.raw_alloc(bytes); });
    fill(block, bytes, c10::cuda::getCurrentCUDAStream());
    return block;
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    void* const block =
        under_cap(bytes, [&] { return inner_.raw_alloc_with_stream(bytes, stream); });
    fill(block, bytes, stream);
    return block;
  }

  void raw_delete(void* block) override { inner_.raw_delete(block); }
  c10::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return inner_.is_simple_data_ptr(data);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_.copy_data(to, from, bytes);
  }
  bool initialized() override { return inner_.initialized(); }
  void emptyCache(MempoolId_t pool) override { inner_.emptyCache(pool); }
  void init(int devices) override { inner_.init(devices); }
  double getMemoryFraction(DeviceIndex device) override { return inner_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    inner_.setMemoryFraction(fraction, device);
  }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return inner_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { inner_.enable(value); }
  bool isEnabled() const override { return inner_.isEnabled(); }
  void cacheInfo(DeviceIndex device, std::size_t* largest) override {
    inner_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* block, std::size_t* bytes) override {
    return inner_.getBaseAllocation(block, bytes);
  }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    inner_.recordStream(data, stream);
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    inner_.recordStream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return inner_.getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { inner_.resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { inner_.resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex device) override {
    return inner_.getMemoryInfo(device);
  }
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool traces) override {
    return inner_.snapshot(pool, traces);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    inner_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    inner_.endAllocateToPool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    inner_.releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return inner_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<TorchAllocator> allocator) override {
    inner_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    inner_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    inner_.setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return inner_.checkPoolLiveAllocations(device, pool, expected);
  }
  caching::ShareableHandle shareIpcHandle(void* block) override {
    return inner_.shareIpcHandle(block);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return inner_.getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return inner_.isHistoryEnabled(); }
  void recordHistory(bool enabled, caching::CreateContextFn context, std::size_t most_entries,
                     caching::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    inner_.recordHistory(enabled, context, most_entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& data) override {
    inner_.recordAnnotation(data);
  }
  void pushCompileContext(std::string& data) override { inner_.pushCompileContext(data); }
  void popCompileContext() override { inner_.popCompileContext(); }
  void setUserMetadata(const std::string& data) override { inner_.setUserMetadata(data); }
  std::string getUserMetadata() override { return inner_.getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    inner_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    inner_.attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex from, DeviceIndex to) override {
    inner_.enablePeerAccess(from, to);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peer) override {
    return inner_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peer);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                              MempoolId_t pool) override {
    return inner_.getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return inner_.setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return inner_.name(); }

 private:
  template <typename Allocate>
  static std::invoke_result_t<const Allocate&> under_cap(std::size_t bytes,
                                                         const Allocate& allocate) {
    DeviceIndex device = -1;
    const bool known = c10::cuda::GetDevice(&device) == cudaSuccess;
    CudaMeter* const meter = known ? find_cuda_meter(device) : nullptr;
    return meter != nullptr ? meter->under_cap(bytes, allocate) : allocate();
  }

  TorchAllocator& inner_;
};

}  // namespace

void install_budget_allocator(TorchAllocator& inner) {
  auto* const allocator = new BudgetAllocator(inner);  // leaked: tensors outlive static objects
  caching::allocator.store(allocator);
  constexpr std::uint8_t kAboveTorchs = 100;
  c10::SetAllocator(c10::DeviceType::CUDA, allocator, kAboveTorchs);
}

}  // namespace pudica::hooks
