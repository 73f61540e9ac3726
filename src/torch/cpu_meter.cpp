// The CPU meter: torch's CPU allocator with a count in front of every block.
#include <cstring>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include "base/atomic_max.h"
#include "torch/forward_account.h"
#include "torch/meter.h"
#include "torch/new_memory.h"
#include "torch/recorder.h"

namespace pudica::hooks {
namespace {

class CpuMeter final : public Meter {
 public:
  [[nodiscard]] std::int64_t in_use_bytes() const override { return in_use_.load(); }
  [[nodiscard]] std::int64_t peak_bytes() const override { return peak_.load(); }
  void reset_peak() override { peak_.store(in_use_.load()); }
  void set_cap(std::int64_t cap_bytes, bool refuse) override {
    refuse_.store(refuse);
    cap_.store(cap_bytes > 0 ? cap_bytes : kNoCap);
  }
  [[nodiscard]] std::int64_t cap_bytes() const override {
    const std::int64_t cap = cap_.load();
    return cap == kNoCap ? 0 : cap;
  }
  [[nodiscard]] std::int64_t overruns() const override { return overruns_.load(); }
  [[nodiscard]] std::int64_t refusals() const override { return refusals_.load(); }
  void set_pressure_callback(PressureCallback callback) override {
    pressure_.set(std::move(callback));
  }
  void set_recorder(Recorder* recorder) override { recorder_.set(recorder); }

  [[nodiscard]] bool has_counted(const c10::DataPtr& data) const override;
  void add_uncounted(std::int64_t bytes) override {
    const std::int64_t now = in_use_.fetch_add(bytes) + bytes;
    raise_to(peak_, now);
  }

  void begin_forward(bool shares) override { forwards_.begin(shares); }
  void end_forward() override { forwards_.end(); }
  [[nodiscard]] std::int64_t held_bytes() const override { return forwards_.held_bytes(); }
  [[nodiscard]] std::int64_t returned_bytes() const override { return forwards_.returned_bytes(); }

  // The forward that a block of `bytes` made now belongs to; 0: none.
  std::uint32_t forward(std::int64_t bytes) { return forwards_.made(bytes); }

  // Counts `bytes` in, making room under the cap first. Throws c10::OutOfMemoryError.
  void reserve(std::int64_t bytes) {
    // Reserved before the check: two racing threads cannot both pass it.
    std::int64_t now = in_use_.fetch_add(bytes) + bytes;
    if (now > cap_.load(std::memory_order_relaxed)) {
      make_room(bytes);
      now = in_use_.load();
    }
    raise_to(peak_, now);
  }
  // What was reserved is at `data` now.
  void made(std::int64_t bytes, const void* data) { record(bytes, data); }
  // It could not be had.
  void unreserve(std::int64_t bytes) { in_use_.fetch_sub(bytes); }

  void release(std::int64_t bytes, std::uint32_t forward, const void* data) {
    in_use_.fetch_sub(bytes);
    const ForwardAccount::Freed freed = forwards_.freed(bytes, forward);
    if (freed.is_this_steps) record(-bytes, data);
    if (freed.all_has_returned && recorder_.any()) recorder_.forward_returned();
  }

 private:
  static constexpr std::int64_t kNoCap = INT64_MAX;

  void record(std::int64_t delta, const void* data) {
    if (recorder_.any() && this_thread_is_recorded()) recorder_.event(delta, data);
  }

  void make_room(std::int64_t bytes) {
    const auto callback = pressure_.get();
    while (in_use_.load() > cap_.load()) {
      const std::int64_t missing = in_use_.load() - cap_.load();
      if (callback == nullptr || !(*callback)(missing)) break;
    }
    if (in_use_.load() <= cap_.load()) return;
    if (!refuse_.load()) {
      overruns_.fetch_add(1);
      return;
    }
    in_use_.fetch_sub(bytes);
    refusals_.fetch_add(1);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "pudica: the CPU budget is spent: asked for ", bytes,
                     " bytes with ", in_use_.load(), " in use of ", cap_.load());
  }

  std::atomic<std::int64_t> in_use_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> cap_{kNoCap};
  ForwardAccount forwards_;
  std::atomic<std::int64_t> overruns_{0};
  std::atomic<std::int64_t> refusals_{0};
  std::atomic<bool> refuse_{false};
  PressureSlot pressure_;
  RecorderSlot recorder_;
};

CpuMeter& the_meter() {
  static auto* const meter = new CpuMeter;  // leaked: tensors may die after static objects
  return *meter;
}

// A block is a header of one cache line that holds its size and its forward, then the data (64-byte
// aligned, as torch's own allocator gives it). data == context, which raw_allocate requires.
class MeteredAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, cpu};
    the_meter().reserve(static_cast<std::int64_t>(bytes));
    char* block = nullptr;
    try {
      block = static_cast<char*>(c10::alloc_cpu(bytes + kHeaderBytes));
    } catch (...) {
      the_meter().unreserve(static_cast<std::int64_t>(bytes));
      throw;
    }
    const Header header{static_cast<std::int64_t>(bytes),
                        the_meter().forward(static_cast<std::int64_t>(bytes))};
    std::memcpy(block, &header, sizeof(header));
    the_meter().made(header.bytes, block + kHeaderBytes);
    const MemoryPattern pattern = pattern_of_new_memory();
    if (pattern != MemoryPattern::kNone) {
      std::memset(block + kHeaderBytes, static_cast<int>(pattern), bytes);
    }
    return {block + kHeaderBytes, block + kHeaderBytes, &free_block, cpu};
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  static bool made(const c10::DataPtr& data) { return data.get_deleter() == &free_block; }

  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }

 private:
  static constexpr std::size_t kHeaderBytes = 64;
  struct Header {
    std::int64_t bytes = 0;
    std::uint32_t forward = 0;
  };

  static void free_block(void* data) {
    if (data == nullptr) return;
    char* const block = static_cast<char*>(data) - kHeaderBytes;
    Header header;
    std::memcpy(&header, block, sizeof(header));
    the_meter().release(header.bytes, header.forward, data);
    c10::free_cpu(block);
  }
};

bool CpuMeter::has_counted(const c10::DataPtr& data) const {
  return data.get() == nullptr || MeteredAllocator::made(data);
}

}  // namespace

Meter& cpu_meter() {
  static const c10::Allocator* const installed = [] {
    auto* const allocator = new MeteredAllocator;  // torch's from here on, until the process ends
    // Any priority not below the present one replaces it; 100 is above torch's profiling ones.
    c10::SetAllocator(c10::DeviceType::CPU, allocator, 100);
    return allocator;
  }();
  (void)installed;
  return the_meter();
}

}  // namespace pudica::hooks
