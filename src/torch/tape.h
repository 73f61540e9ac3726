// Tape: the operators of one layer call, so that single saved tensors can be dropped and recovered
// by running just the operators they need.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "torch/bits.h"
#include "torch/tape_dispatch.h"
#include "torch/tape_operator.h"
#include "torch/work_clock.h"

namespace pudica::hooks {

// Storages of a tape by number; true: in the set.
using StorageSet = std::vector<bool>;

// The operators that recovering a set of storages takes.
struct Closure {
  bool feasible = true;
  std::vector<bool> entries;  // by entry: to be run again
  StorageSet held;            // storages whose bytes the tape must keep for them
  double seconds = 0;         // of those operators in the forward
  std::int64_t operators = 0;
};

// A tensor is known by its storage and how often that was written before (its version): views are
// not recorded, and an in-place operator makes a new version of the same storage. A storage that
// was not made by a recorded operator is external (inputs, parameters): it is held, never
// recovered.
//
// Life: recording (record, slot, escape; let_go and take_back), then keep() prunes it to what may
// have to be recovered, then recover() and collect(). Not thread-safe: the frame's mutex guards it.
class Tape final : public OperatorObserver {
 public:
  static constexpr std::int32_t kNone = -1;

  struct Reference {
    std::uint16_t argument = 0;
    std::int16_t element = kNone;  // of a list argument
    std::int32_t storage = kNone;
    std::int32_t version = 0;
    bool written = false;
  };
  struct Output {
    std::uint16_t result = 0;
    std::int32_t storage = kNone;
  };
  struct Entry {
    explicit Entry(c10::OperatorHandle handle) : op(std::move(handle)) {}

    c10::OperatorHandle op;
    const OperatorFacts* facts = nullptr;
    c10::DispatchKeySet keys;
    // The thread's own state at the call: operators run below autograd and autocast.
    c10::impl::LocalDispatchKeySet local_keys = c10::impl::tls_local_dispatch_key_set();
    bool makes_gradients = at::GradMode::is_enabled();  // some operators ask, even there
    std::vector<c10::IValue> arguments;                 // tensors without their storage
    c10::SmallVector<Reference, 4> references;
    c10::SmallVector<Output, 2> outputs;
    // Versions of external tensors: one that was changed since must not be read.
    c10::SmallVector<std::pair<c10::VariableVersion, std::uint32_t>, 2> external_versions;
    double seconds = 0;
    bool random = false;
    bool pruned = false;
  };
  struct Stored {
    c10::StorageImpl* address = nullptr;  // while recording
    c10::weak_intrusive_ptr<c10::StorageImpl> alive{c10::intrusive_ptr<c10::StorageImpl>()};
    bool external = false;
    bool parameter = false;             // external, needs a gradient, and is no argument
    bool escapes = false;               // an output of the layer
    bool strange = false;               // made in a way that cannot be repeated
    bool truth_values = false;          // made as bytes that are 0 or 1 each
    bool pinned = false;                // the forward's own bytes are there
    std::vector<std::int32_t> writers;  // entry by version; kNone: not recorded
    std::int32_t version = 0;
    std::int32_t slots = 0;    // tensors saved of it, at its final version
    bool saved_early = false;  // one was saved before its last write
    std::int64_t bytes = 0;
    std::int64_t item_bytes = 0;
    c10::Storage live;  // its bytes at `live_version`
    std::int32_t live_version = kNone;
    c10::Storage set_aside;    // the forward's own bytes, while `live` is an older version
    std::optional<Bits> bits;  // its final bytes

    [[nodiscard]] const c10::Storage& forwards_own() const { return set_aside ? set_aside : live; }
    // At its final version: what was written into it later may be anything.
    [[nodiscard]] Contents contents() const {
      return truth_values && version == 0 ? Contents::kTruthValues : Contents::kAny;
    }
    void let_go_live();  // back to the forward's own bytes, or to none
    // While recording:
    std::optional<Bits> bits_when_saved;  // where the call is collected
    bool let_go = false;                  // of the saved tensors only this tape can give it back
    bool relied_on = false;               // let go, or read by what gives back what was
    std::int32_t rerun_version = kNone;   // up to which that makes it again
  };

  // `timed`: the seconds of each operator are measured by `clock` (on CUDA with synchronisation).
  Tape(c10::Device device, bool timed, HostClock clock = {});
  ~Tape() override;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The tensors that the layer is called with.
  void arguments(const std::vector<at::Tensor>& tensors);
  // Runs the operator on the stack and records it. Called from the dispatcher.
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;
  // A tensor saved for the backward: its storage.
  std::int32_t slot(const at::Tensor& tensor);
  // A saved tensor of this storage was released before the layer ended.
  void unslot(std::int32_t storage);
  void escape(const at::Tensor& output);
  // Something ran unseen (a dispatch mode, a tensor subclass): nothing may be dropped.
  [[nodiscard]] bool incomplete() const { return incomplete_; }
  // Of the sequence of operators; equal calls have equal numbers.
  [[nodiscard]] std::uint64_t signature() const { return signature_; }

  // Of everything so far: operators with the tensors that they got, what was saved and released.
  // Where equal, what was true of the one call is true of the other.
  [[nodiscard]] std::uint64_t history() const { return history_; }
  // In a call that is collected: whether a tensor has two values when it is saved. What that
  // allocates belongs to no segment: logs of calls must be alike.
  [[nodiscard]] bool collects() const { return timed_; }
  [[nodiscard]] const HostClock& clock() const { return clock_; }
  void note_bits(std::int32_t storage);
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }
  // By operator, the signature up to it.
  [[nodiscard]] const std::vector<std::uint64_t>& sequence() const { return sequence_; }

  // So that a saved storage need not stay until the layer ends, while recording. What is pointed to
  // must outlive it.
  struct Following {
    const std::vector<std::uint64_t>* sequence = nullptr;      // of the calls that may let go
    const std::vector<std::string>* keep_operators = nullptr;  // never to run again
    // Called before an operator runs that is not the next of the sequence, that writes what was
    // relied on, or that runs on another stream: it must take back all that was let go, and is
    // called again before the next operator if it throws.
    std::function<void()> before_deviation;
  };
  void follow(Following following);
  [[nodiscard]] bool follows() const { return followed_.sequence != nullptr; }
  [[nodiscard]] bool has_let_go() const;
  // The storage is no longer held for its slots; what recovering it reads is. False: it has to
  // stay, as far as is known now.
  bool let_go(std::int32_t storage);
  // Likewise, held as bits. False: it has more than two values.
  bool let_go_as_bits(std::int32_t storage);
  // What was let go: its own bytes where anybody still has them, recovered otherwise.
  c10::Storage take_back(std::int32_t storage);
  // What was made on the way goes, but for what `needed` still wants.
  void forget_remade(const StorageSet& needed);
  // All of it is back: nothing is held, nor let go any more.
  void end_following();

  // Saved storages that can be recovered exactly as far as the tape tells.
  [[nodiscard]] StorageSet recoverable() const;
  // What recovering all of `drop` takes when every other saved storage is there.
  [[nodiscard]] Closure closure(const StorageSet& drop) const;

  // Ends the recording. Of `candidates`, the saved storages that may have to be recovered, those in
  // `pinned` keep their bytes for now. `bytes_of` are the saved storages.
  void keep(const Closure& closure, const StorageSet& candidates, const StorageSet& pinned,
            const std::vector<c10::Storage>& bytes_of);
  // Lets a candidate's bytes go; returns what comes back.
  std::int64_t drop(std::int32_t storage);
  // Bytes that drop() would give back: 0 where something else owns them.
  [[nodiscard]] std::int64_t droppable_bytes(std::int32_t storage) const;
  // The forward's own bytes are there, final: nothing is to be recovered.
  [[nodiscard]] bool has_forwards_own(std::int32_t storage) const;
  [[nodiscard]] bool externals_unchanged() const;

  // The storage with its final bytes, recovered where needed. Throws what operators throw.
  const c10::Storage& recover(std::int32_t storage);
  // The same; what is made on the way goes as soon as neither this storage nor those in `needed`
  // want it.
  const c10::Storage& recover(std::int32_t storage, StorageSet needed);
  // Frees what no saved storage in `needed` wants any more, by reverse liveness. `pinned_too`: also
  // what the forward left, where none of them could be recovered from it once more.
  void collect(const StorageSet& needed, bool pinned_too);
  // Forgets what was recovered for an earlier backward.
  void forget_recovered();
  [[nodiscard]] std::int64_t operators_run() const { return operators_run_; }

  [[nodiscard]] const std::vector<Stored>& stored() const { return stored_; }
  [[nodiscard]] std::vector<Stored>& stored() { return stored_; }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] double total_seconds() const { return total_seconds_; }

 private:
  static std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

  std::int32_t find(const at::Tensor& tensor) const;
  std::int32_t add(const at::Tensor& tensor, bool external);
  at::Tensor refer(Entry& entry, const at::Tensor& tensor, Reference where);
  c10::IValue hold_argument(Entry& entry, const c10::IValue& value, std::uint16_t argument);
  // What giving back a storage takes: others up to a version, made again, and others as they are.
  struct Rerun {
    std::unordered_map<std::int32_t, std::int32_t> versions;
    std::unordered_set<std::int32_t> held;
    std::vector<std::pair<std::int32_t, std::int32_t>> open;  // still to be looked at, by version
  };

  [[nodiscard]] bool can_be_relied_on(const Reference& reference) const;
  [[nodiscard]] bool may_be_made_again(std::int32_t storage, const Rerun& plan) const;
  void plan_inputs(const Entry& entry, Rerun& plan) const;
  bool plan_rerun(std::int32_t storage, Rerun& plan) const;
  enum class Event : std::uint8_t { kSaved, kReleased, kRead, kWritten };
  void remember(Event event, std::int32_t storage, std::int32_t version);
  void check_sequence();
  void check_writes(const Entry& entry);
  void deviate();
  [[nodiscard]] bool may_run_again(const Entry& entry) const;
  double run_now(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) const;
  void note_results(std::int32_t entry, const torch::jit::Stack& stack, std::size_t base,
                    bool& matters);
  [[nodiscard]] bool written_by(const Stored& stored, std::int32_t version,
                                const std::vector<bool>& repeatable) const;
  [[nodiscard]] std::vector<std::int32_t> oldest_wanted(
      const StorageSet& needed, bool by_pinned = false,
      std::vector<bool>* all_runs = nullptr) const;
  void recover_to(std::int32_t storage, std::int32_t version);
  void run(Entry& entry);
  void bring_back_inputs(const Entry& entry);
  void sweep_after(const Entry& entry);
  void push_arguments(const Entry& entry, torch::jit::Stack& stack) const;

  c10::Device device_;
  bool timed_ = false;
  HostClock clock_;
  bool incomplete_ = false;
  std::uint64_t signature_ = 0xcbf29ce484222325ULL;
  std::uint64_t history_ = 0xcbf29ce484222325ULL;
  std::vector<std::uint64_t> sequence_;
  Following followed_;
  std::size_t position_ = 0;           // operators seen of its sequence
  std::optional<c10::Stream> stream_;  // that the call began on, not on a CPU
  std::vector<Entry> entries_;
  std::vector<Stored> stored_;
  std::unordered_map<const c10::StorageImpl*, std::int32_t> by_address_;
  std::vector<const c10::StorageImpl*> arguments_;
  double total_seconds_ = 0;
  std::int64_t operators_run_ = 0;
  // While recovering: what is made on the way goes after its last reader.
  struct Sweep {
    StorageSet needed;
    std::vector<std::int32_t> readers;  // by storage: that are still to run, or wait for it
    std::vector<bool> runs;             // by operator: still to run
  };
  std::optional<Sweep> sweep_;
};

}  // namespace pudica::hooks
