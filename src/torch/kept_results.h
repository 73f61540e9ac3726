// KeptResults: what named operators of a layer made, held so that they need not run when the layer
// is run again (PyTorch calls it selective checkpointing).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include "torch/random_state.h"
#include "torch/tape_dispatch.h"
#include "torch/tape_operator.h"

namespace pudica::hooks {

// For one layer call, under a TapeGuard: holds results while the layer runs, and answers with them
// instead of the operators when it runs again.
//
// A call is known by all operators before it that had to do with the layer's arguments, so that a
// run that does something else is answered nothing from there on. Operators on parameters alone
// (casts of weights) are not counted, since autocast's cache may have spared them, and hold
// nothing. A result that the very next operators write (a product to which a bias is added in
// place) is held as it was written, and the writes are not made again either. One that is written
// later is no longer what its readers got: it goes, and its operator runs again. Not thread-safe:
// the frame's mutex guards it.
class KeptResults final : public OperatorObserver {
 public:
  // By name, as MenuRules::keep_operators has them.
  using Names = std::shared_ptr<const std::vector<std::string>>;

  KeptResults(Names operators, c10::Device device);

  // The layer's forward begins, on these arguments, and ends.
  void begin_forward(const std::vector<at::Tensor>& arguments);
  void end_forward();
  // It runs again. `once`: what was answered is not asked for another time, and goes.
  void begin_rerun(const std::vector<at::Tensor>& arguments, bool once);
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override;

 private:
  struct Result {
    std::uint64_t call = 0;    // signature_ with the call's operator
    std::uint64_t latest = 0;  // the same of the latest of its call and its writes
    std::vector<c10::IValue> values;
    std::vector<std::uint64_t> writes;       // calls that wrote it before it was read
    bool is_read = false;                    // by something else than those
    std::vector<std::uint32_t> versions;     // of the tensors in `values`, as the forward ended
    std::optional<RandomState> random_then;  // after a call that drew random numbers

    [[nodiscard]] bool has(const c10::StorageImpl* storage) const;
  };
  // A tensor that an operator was given.
  struct Use {
    const c10::StorageImpl* storage = nullptr;
    bool written = false;
  };
  using Uses = std::vector<Use>;
  // What a call of the forward did.
  struct Call {
    const OperatorFacts& facts;
    const Uses& uses;
    const c10::StorageImpl* only_result = nullptr;  // null: none, or several
    bool drew = false;                              // random numbers
    bool reshapes = false;                          // changes the tensor, not its bytes alone
  };

  void begin(const std::vector<at::Tensor>& arguments, bool forward, bool once);
  [[nodiscard]] bool depends_on_arguments(const torch::jit::Stack& stack, std::size_t base) const;
  void note_made(const torch::jit::Stack& stack, std::size_t base, bool depends);
  [[nodiscard]] bool is_named_one(const OperatorFacts& facts) const;
  void run_forward(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack, const OperatorFacts& facts);
  // False: the result is not to be held any longer.
  bool note_call(const Call& call, Result& result) const;
  // Nothing: one of its results cannot be held.
  [[nodiscard]] static std::optional<Result> held(const torch::jit::Stack& stack, std::size_t base,
                                                  const Uses& arguments);
  // False: the operator has to run.
  bool answer(torch::jit::Stack* stack, const OperatorFacts& facts);
  bool answer_write(torch::jit::Stack* stack, const OperatorFacts& facts) const;

  Names operators_;
  c10::Device device_;
  bool forward_ = true;
  bool once_ = false;
  std::uint64_t signature_ = 0;
  std::uint64_t previous_ = 0;  // signature_ before the operator under way
  std::unordered_set<const c10::StorageImpl*> dependent_;  // on the layer's arguments
  std::vector<Result> results_;
  std::unordered_set<std::uint64_t> made_writes_;  // in a rerun, of results that were answered
};

}  // namespace pudica::hooks
