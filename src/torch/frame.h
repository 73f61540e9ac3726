// Frame: one layer call (or a joint segment of several) whose saved tensors are held in slots, and
// can be dropped and recovered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "torch/ambient.h"
#include "torch/class_menu.h"
#include "torch/eviction_graph.h"
#include "torch/forwarding_engine.h"
#include "torch/host_tier.h"
#include "torch/kept_results.h"
#include "torch/layer_buffers.h"
#include "torch/offload_habit.h"
#include "torch/tape.h"
#include "torch/trial_watch.h"
#include "torch/work_clock.h"
#include "torch/write_watch.h"

namespace pudica::hooks {

class Registry;

using FrameFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Told what frames do. Shared by the frames, so that it outlives the handle that made them. Called
// on the thread that runs the backward; must not throw.
class FrameObserver {
 public:
  virtual ~FrameObserver() = default;
  virtual void before_recompute(std::int32_t layer) noexcept = 0;
  virtual void after_recompute(std::int32_t layer) noexcept = 0;
  // The frame dies after its tape recovered tensors in a backward, or after they came back from the
  // host: time spent on it, packing and copying out included.
  virtual void recovered(std::int32_t layer, const WorkTime& time) noexcept = 0;
  // The frame's slots were taken away; called while the registry is locked.
  virtual void revoked(std::int32_t layer) noexcept = 0;
  // A recompute did not save what the forward saved.
  virtual void recompute_deviated(std::int32_t layer, std::uint16_t layer_class,
                                  const std::string& what) noexcept = 0;
  // A frame on trial was run again, and saved the same to the bit. Its forward had changed these
  // buffers; `keeps_state`: and something that no rerun finds as the forward did.
  virtual void trial_passed(std::uint16_t layer_class, const BufferPlaces& changed,
                            bool keeps_state) noexcept = 0;
  // A call changed buffers that are lost, which none of its class did when it was tried.
  virtual void trial_due(std::uint16_t layer_class, const BufferPlaces& changed) noexcept = 0;
};

// How many layers this thread is inside of, in forward or in recompute: the handle opens no frame
// for a layer met inside another.
int& this_thread_layers_open();

// What note_layer_state() tells of what runs on this thread.
bool& layer_state_changed();

// Counts one layer in for its lifetime.
class LayerDepth {
 public:
  LayerDepth() { ++this_thread_layers_open(); }
  ~LayerDepth() { --this_thread_layers_open(); }
  LayerDepth(const LayerDepth&) = delete;
  LayerDepth& operator=(const LayerDepth&) = delete;
};

// By what rule the frames of a session give up single tensors. Guarded by the registry's mutex.
struct EvictionControl {
  EvictionRule rule = EvictionRule::kDtr;
  HostClock clock;
  HostInstant began;
  std::mt19937_64 random;
};

struct FrameOptions {
  bool store = true;                   // fill the slots in forward (keep); false: drop (full)
  std::shared_ptr<Registry> registry;  // set: the frame can be revoked; on trial: once it passed
  std::int32_t layer = -1;
  std::uint16_t layer_class = 0;
  double expected_recompute_us = 0;  // for the order of revocation
  // Of a frame that does not store: operators whose results are held, and which do not run again.
  // Null: none.
  KeptResults::Names keep_operators;
  // A kept frame is run again as soon as it ends, and what it saves compared, before any frame of
  // its class may rely on that.
  bool on_trial = false;
  // Set: operators are recorded, and single saved tensors dropped as `menu_step` of the class's
  // menu says (kNoStep: none now); with a registry the others can follow one by one.
  static constexpr std::int32_t kNoStep = -1;
  std::shared_ptr<ClassTapes> tapes;
  std::shared_ptr<const ClassMenu> menu;  // that the call is expected to follow; null: the latest
  std::int32_t menu_step = kNoStep;
  std::shared_ptr<EvictionControl> eviction;  // null: each single tensor once, the cheapest first
  // Set: what nobody else holds is copied there, and freed on the device when the layer ends.
  std::shared_ptr<HostTier> host;
  std::shared_ptr<OffloadHabit> offload_habit;  // of the class; null: copies begin at the end
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  WorkTimer timer;  // of recoveries
  std::shared_ptr<FrameObserver> observer;
};

// Life: running -> kept | taped | offloaded | dropped -> (recomputing -> filled)*. The graph's
// hooks hold the frame; it dies with the last of them. Thread-safe: a recursive mutex, held during
// recovery.
//
// Three strategies recover slots. Offload: from copies in host memory. Rerun: the frame's functions
// run again; random state, autocast state and buffers are put back around it, and what it saves is
// compared with what the forward saved. Tape (state taped): each slot by just the operators it
// needs, when it is asked for; nothing of the user's runs again. While the call does what its class
// is known to do, what is to be dropped goes as it is saved; the last word is said when the layer
// ends, and it is known what the call did.
class Frame : public std::enable_shared_from_this<Frame> {
 public:
  static std::shared_ptr<Frame> make(FrameOptions options);
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // Opens the next part: what runs on this thread until end_part() or abort_part() belongs to it.
  // `function` runs it again. An input that is an output of the part before is not held; every
  // other one is, as a SavedVariable (in-place writes are caught, an outer frame packs it).
  // `buffers` are found by a recompute as they are now, and put back after it (LayerBuffers).
  // `habit`: of the class `layer_class`, which need not be the frame's.
  void begin_part(FrameFunction function, const std::vector<at::Tensor>& inputs,
                  const std::vector<at::Tensor>& buffers, std::uint16_t layer_class = 0,
                  const BufferHabit& habit = {});
  void end_part(const std::vector<at::Tensor>& outputs);
  // The part threw, or nobody knows how it ended.
  void abort_part() noexcept;
  // begin, `function`, end.
  std::vector<at::Tensor> run_part(const FrameFunction& function,
                                   const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& buffers);
  // The last part has run (or thrown).
  void finish();

  [[nodiscard]] std::int32_t layer() const { return options_.layer; }
  [[nodiscard]] std::size_t slot_count() const { return slots_.size(); }
  // Recovery is by tape: the class's menu fits this call. After finish().
  [[nodiscard]] bool taped() const { return state_ == State::kTaped; }
  // Single tensors can be given up: the tape recovers them.
  [[nodiscard]] bool gives_single_tensors() const {
    return state_ == State::kTaped && !eviction_ && next_price_us() >= 0;
  }
  // What it saved is in the host tier. After finish().
  [[nodiscard]] bool offloaded() const { return state_ == State::kOffloaded; }
  // This call was searched for its class's menu: its forward's time is not the layer's, and the
  // search may have been the step's peak. After finish().
  [[nodiscard]] bool searched() const { return searched_; }
  // It ran other operators than expected, for which the menu can be read: it was kept until its
  // end, then did as planned. After finish().
  [[nodiscard]] bool dropped_late() const { return dropped_late_; }
  // What its tape goes by. After finish(), where taped().
  [[nodiscard]] const std::shared_ptr<const ClassMenu>& menu() const { return menu_; }
  // It ran other operators than its class's menu is for, and was kept.
  [[nodiscard]] bool is_strange() const { return is_strange_; }
  // What was let go came back before the layer's end: its forward's time is not the layer's.
  [[nodiscard]] bool taken_back() const { return taken_back_; }
  // Of the host's clock, on packing while the layer ran: no work of the layer's.
  [[nodiscard]] double packing_seconds() const { return packing_seconds_; }

 private:
  friend class Registry;
  class ForwardMode;
  class ForwardHooks;
  class RecomputeMode;
  class RecomputeHooks;
  class TrialMode;

  enum class State : std::uint8_t {
    kRunning,
    kKept,
    kTaped,
    kOffloaded,
    kDropped,
    kRecomputing,
    kFilled
  };

  // What the forward saved; the tensor itself may have been dropped.
  static constexpr int kNoTask = -2;
  struct Slot {
    at::Tensor tensor;
    std::int64_t bytes = 0;
    std::uint32_t version = 0;
    at::ScalarType dtype = at::ScalarType::Undefined;
    bool dead = false;  // its hook is gone: never fill it again
    // Under a tape:
    std::int32_t storage = Tape::kNone;
    std::uint64_t history = 0;  // of the tape, as it was filled
    bool taped = false;         // `tensor` has no bytes of its own: they are the tape's
    c10::VariableVersion version_handle{c10::VariableVersion::DISABLED};
    std::int32_t hosted = -1;  // its storage among hosted_: `tensor` has no bytes of its own
    // Under a tape or in the host tier:
    int done_task = kNoTask;  // the graph task that has read it
  };

  // A storage that nobody but these slots holds; slots in the order in which they were saved.
  struct OwnedStorage {
    std::vector<Slot*> slots;
  };

  // A copy that began when its tensor was saved.
  struct EarlyCopy {
    std::size_t slot = 0;  // the last that saved its storage, by the class's habit
    std::unique_ptr<HostCopy> copy;
  };

  // A storage in the host tier, and on the device again while a backward reads it.
  struct Hosted {
    std::unique_ptr<HostCopy> copy;
    std::int64_t bytes = 0;
    c10::Storage device;
  };

  struct Input {
    std::int64_t previous_output = -1;  // >= 0: that output of the part before
    torch::autograd::SavedVariable saved;
    c10::VariableVersion version_handle{c10::VariableVersion::DISABLED};
    std::uint32_t version = 0;
  };

  struct Part {
    FrameFunction function;
    std::vector<Input> inputs;
    LayerBuffers buffers;
    std::uint16_t layer_class = 0;
    bool keeps_no_state = false;
    Ambient ambient;
  };

  struct OpenPart;

  explicit Frame(FrameOptions options);

  std::size_t pack(const at::Tensor& tensor);
  at::Tensor unpack(std::size_t index);
  void release(std::size_t index);

  std::vector<Input> hold_inputs(const std::vector<at::Tensor>& inputs) const;
  void remember_outputs(const std::vector<at::Tensor>& outputs);
  void recompute();
  void begin_results(const std::vector<at::Tensor>& inputs);
  // In a backward inside the layer, results are still being held.
  [[nodiscard]] bool answers_rerun() const { return results_ && !open_part_; }
  // The last part's outputs.
  // `watch` sees the operators of a trial, where nothing else answers them; null: it is none.
  std::vector<at::Tensor> rerun_parts(SaveMode& mode, TrialWatch* watch = nullptr);
  void try_rerun();
  [[nodiscard]] bool has_room_for_all_again();
  void check_buffers();
  [[nodiscard]] std::string difference_of_outputs(const std::vector<at::Tensor>& outputs) const;
  // The call's bits are compared with those of another run: on trial, or searched for its menu.
  [[nodiscard]] bool is_compared() const;
  void refill(std::size_t index, const at::Tensor& tensor);
  [[nodiscard]] std::string mismatch(std::size_t index, const at::Tensor& tensor) const;
  [[noreturn]] void fail_deviating(const std::string& what) const;
  [[nodiscard]] bool inputs_unchanged() const;
  void drop_all_slots();

  // The tape's part (frame_tape.cpp, frame_let_go.cpp).
  void begin_tape(const std::vector<at::Tensor>& inputs);
  // Of the class's menu; null: none.
  [[nodiscard]] const MenuStep* menu_step() const;
  void follow_menu();
  [[nodiscard]] bool is_let_go(const Slot& slot) const;
  void let_go_early(std::size_t index) noexcept;
  void note_bits(std::size_t index) noexcept;
  // The call is not what it seemed to be: all that went is held again. Throws what operators throw;
  // may then be called again.
  void take_back();
  void settle_tape();
  // Whether the call is one that the menu is for, or can be read for.
  [[nodiscard]] bool fits_menu();
  void read_menu_here();
  // Has the call looked at, where there is room for what that takes.
  void search(const std::function<void(const Collection&)>& look);
  // False: it cannot be, and nothing has changed.
  [[nodiscard]] bool drop_by_menu();
  // The slots let go of these storages: the tape has them.
  void hand_to_tape(const StorageSet& candidates, const StorageSet& packed);
  [[nodiscard]] std::vector<c10::Storage> bytes_of_slots() const;  // by storage
  [[nodiscard]] StorageSet storages_of(const std::vector<std::uint32_t>& slots,
                                       const StorageSet& allowed) const;
  void pack_bits(const std::vector<std::uint32_t>& slots, std::vector<c10::Storage>& bytes_of,
                 StorageSet& packed);
  at::Tensor unpack_taped(std::size_t index);
  [[nodiscard]] StorageSet wanted_slots(int task) const;
  void collect_released();
  // Least price of what the tape can still give; negative: nothing.
  [[nodiscard]] double next_price_us() const;
  std::int64_t give_up_next();
  // What no operator gives back goes last, and the tape with it: the frame's functions then run
  // again. Negative: it cannot, or nothing would come back.
  double rest_price_us();
  void give_up_rest();

  // By a rule (frame_evict.cpp).
  struct NextEviction {
    double score = 0;
    std::size_t node = 0;
  };
  void begin_eviction();
  [[nodiscard]] double eviction_seconds() const;
  [[nodiscard]] std::int32_t storage_of_node(std::size_t node) const;
  [[nodiscard]] std::int64_t evictable_bytes(std::size_t node) const;
  void follow_evictions(std::int32_t read_storage);
  [[nodiscard]] std::optional<NextEviction> next_eviction() const;
  void evict(std::size_t node);

  // The host tier's part (frame_offload.cpp).
  void begin_offload();
  void copy_early(std::size_t index) noexcept;
  std::unique_ptr<HostCopy> take_early(const OwnedStorage& owned);
  void drop_early(std::size_t index) noexcept;
  void settle_offload();
  at::Tensor unpack_hosted(std::size_t index);
  void bring_back(std::int32_t hosted);
  void fetch_ahead(std::int32_t behind, int task);
  [[nodiscard]] std::vector<bool> hosted_wanted(int task) const;
  void let_go_of_read(int task);
  void let_go_of_dead();
  // Until what was begun has arrived there.
  void wait_for(double (HostTier::*copies)());
  void end_copies() noexcept;
  [[nodiscard]] bool has_fetched_ahead() const;
  void drop_fetched_ahead();

  [[nodiscard]] std::vector<OwnedStorage> owned_storages();
  // By slot: its memory comes back once it and those that share it let go, on any thread.
  [[nodiscard]] std::vector<bool> slots_of_its_own();
  // For the registry, under mutex_. Bytes that come back if every slot goes: storages that nobody
  // but our slots owns. With `drop`, the slots go too.
  std::int64_t freeable_bytes(bool drop);

  FrameOptions options_;
  mutable std::recursive_mutex mutex_;
  State state_ = State::kRunning;
  std::vector<Part> parts_;
  std::unique_ptr<OpenPart> open_part_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> previous_outputs_;
  std::vector<Slot> slots_;
  int touched_task_ = kNoTask;            // the graph task that has unpacked from this frame
  std::unique_ptr<KeptResults> results_;  // null: none are held
  std::unique_ptr<Tape> tape_;
  std::shared_ptr<const ClassMenu> menu_;
  std::unique_ptr<EvictionGraph> eviction_;  // null: no rule, or no tape
  bool recovering_ = false;
  bool consumed_ = false;  // a backward has read it for good: nothing more is given up
  bool searched_ = false;
  bool is_strange_ = false;
  bool dropped_late_ = false;
  bool lost_buffers_ = false;  // changed, though none of its class did when it was tried
  bool taken_back_ = false;
  double packing_seconds_ = 0;
  bool recovered_ = false;  // something, by the tape
  std::vector<Hosted> hosted_;
  std::vector<std::uint32_t> early_slots_;
  std::vector<EarlyCopy> early_copies_;  // by slot
  std::unique_ptr<WriteWatch> writes_;   // of what they copy; set: copies begin early
  std::size_t early_compared_ = 0;
  std::size_t early_equal_ = 0;
  WorkTime recovery_;              // packing or copying out, and all that came back in backwards
  std::size_t next_given_up_ = 0;  // of the menu's order
  int revocations_ = 0;

  // The registry's list, guarded by its mutex.
  Frame* before_ = nullptr;
  Frame* after_ = nullptr;
  std::uint64_t sequence_ = 0;
  bool listed_ = false;
};

}  // namespace pudica::hooks
