// The hook layer's API for LibTorch programs: attach, run layers, hold the budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "pudica/bytes.h"
#include "pudica/plan.h"
#include "pudica/policy.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"
#include "pudica/work_clock.h"

namespace pudica {

// soft: at the budget kept layers are revoked; with nothing left the allocation goes through and
// the step counts as an overrun. hard: the allocator refuses (c10::OutOfMemoryError).
enum class Enforcement : std::uint8_t { kSoft, kHard };

// A layer: tensors in, tensors out. Must give the same values when called again with the same
// inputs, random state and parameters. It may outlive the call (until the backward): capture by
// value what it needs.
using LayerFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// What a layer's function throws where the program is to stop (Ctrl-C in another language): the
// layer has not failed. pudica lets go of what it was at, and `cause` comes out of the backward, or
// of leave_layer(), as it was.
class Interruption final : public std::exception {
 public:
  explicit Interruption(std::exception_ptr cause)
      : cause_(std::move(cause)) {}  // NOLINT(bugprone-throw-keyword-missing): kept, not thrown
  [[nodiscard]] const char* what() const noexcept override { return "pudica: interrupted"; }
  [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

 private:
  std::exception_ptr cause_;
};

// What a layer's function throws where it knows that it did not do what it did in the forward (it
// drew other random numbers): nothing that it has saved again is to be used.
class Deviation final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Called inside a layer's function that changes what the layer keeps on itself: that one call
// reproduces itself proves little then (a running mean that begins with the first batch does), and
// another one is tried in a later step. On the thread that runs the layer; harmless elsewhere.
void note_layer_state();
// Called inside a layer's function while it is tried: an operator that were to write one of these
// fails instead, and the layer's class is kept. So do those that write the layer's inputs. For
// tensors that a second call of the layer must not change (parameters that it writes through
// `.data`, where no version tells). Nothing where no layer is tried on this thread.
void protect_in_trial(const std::vector<at::Tensor>& tensors);

struct LayerOptions {
  // Layers of one class have the same code and parameter shapes: they share one learned model.
  std::string layer_class = "layer";
  // Tensors that the function changes besides its outputs (batch norm's running statistics): found
  // by a recompute as the forward found them, and left as they are by then. Large ones (more than
  // 64 KiB of a layer's) only where calls of the class were seen to change them.
  std::vector<at::Tensor> buffers;
  // Nobody has promised that the layer gives the same when it is called again: the first call of
  // its class is kept, and run again at once to see, and one of a later step where that changed
  // large `buffers` or told of other state; a class that fails is kept from then on.
  bool unproven = false;
  // Inputs beyond so many do not tell classes apart (what a cache that is passed holds already).
  std::size_t telling_inputs = std::numeric_limits<std::size_t>::max();
  // The layer before it can be run again only in its own backward (it reads parameters that are
  // there for its forward and its backward alone): the two are not one segment.
  bool apart = false;
};

// Which tensors selective modes may drop, by the operator that made them: "addmm" or "aten::addmm",
// a * at the end stands for any rest. Modes `keep` and `full`, and revocation, are not bound.
struct MenuRules {
  std::vector<std::string> keep_operators;  // never run again: what they made stays
  // What they made and a layer saves is dropped in every selective mode, where it can be recovered.
  std::vector<std::string> recompute_operators;
};

// Where layers of mode `offload` put what they saved: pinned host memory for a CUDA device; for the
// CPU memory that the budget does not count, behind a link of the given bandwidth (0: as fast as
// memory is copied), so that plans with `offload` can be tried on any machine.
struct OffloadOptions {
  Bytes host_bytes{std::int64_t{4} << 30U};  // at most; what does not fit stays on the device
  double simulated_bytes_per_second = 0;
};

struct AttachOptions {
  Bytes budget_bytes{0};  // 0: measured, not limited
  Enforcement enforcement = Enforcement::kSoft;
  // Asked as each step begins, before its plan is made: a value takes the budget's place from this
  // step on. May be empty. Must not block.
  std::function<std::optional<Bytes>()> next_budget;
  // Null: the policy `pudica` with default options. Shared so that the caller can inspect it.
  std::shared_ptr<Policy> policy;
  // The model's parameters, to see whether gradients exist already, and to count those made before
  // the meter was installed. May be empty.
  std::vector<at::Tensor> parameters;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  MenuRules menu_rules;
  OffloadOptions offload;
  // What layers, recomputes and steps are timed by. Null: the device's own clock, or the CPU time
  // of the thread. With operator_clock() plans are the same on every machine.
  std::shared_ptr<WorkClock> clock;
};

// What one step did, for reports.
struct StepReport {
  std::uint64_t step = 0;
  ShapeKey shape;
  PlanPtr plan;  // null: no plan (detached or standing down)
  Bytes base_bytes{0};
  Bytes peak_bytes{0};  // measured
  Bytes budget_bytes{0};
  Bytes host_peak_bytes{0};  // of layers of mode `offload`, in host memory
  // Of a device whose allocator caches (CUDA), else 0: the most that it had in blocks and reserved
  // from the device, and what it could not have given back beyond what was in use.
  Bytes active_peak_bytes{0};
  Bytes reserved_peak_bytes{0};
  Bytes gap_bytes{0};
  Bytes predicted_reserved_bytes{0};  // 0: no peak was predicted
  std::int64_t layer_calls = 0;
  std::int64_t recomputed_layers = 0;  // by plan or after a revocation
  std::int64_t revocations = 0;
  bool overrun = false;
  bool recorded = false;  // a learning step: segments were measured
  bool rested = false;    // Handle::rest(): the layers were passed by
  bool ran_free = false;  // some layers were kept, and all that were ran without hooks
  // Layers were called that its plan is not for (thawed ones, of another type), in their places.
  bool other_layers = false;
  // Its backward went through the layers more than once (losses on one graph one after the other,
  // the gradient of a gradient): what it needed says nothing of the plan.
  bool repeated_backward = false;
  // It was planned as a forward that others follow before its backward, and that came with it; or
  // the other way round.
  bool other_course = false;
  std::int64_t plan_ns = 0;  // time spent in begin_step of the policy

  // nullopt: none was predicted, or not for what the step did.
  [[nodiscard]] std::optional<Bytes> predicted_peak() const {
    const bool other = other_layers || repeated_backward || other_course;
    if (!plan || !plan->predicts_peak() || other) return std::nullopt;
    return plan->predicted_peak(ran_free);
  }
};

// One attached model. Several may share a device: the budget of the one whose step began last
// holds, and a step that another one's cut short teaches nothing. Not thread-safe: the methods are
// called by the thread that trains; the backward may run on other threads. A failure inside pudica
// never reaches the caller: training goes on without a plan, `failures()` rises and one line is
// logged.
class Handle {
 public:
  virtual ~Handle() = default;

  // A step is one forward and backward (and optimizer step). begin_step closes an open step first.
  virtual void begin_step(const ShapeKey& shape) = 0;
  // In its place once the forward has come to its first layer, where until then nobody could know
  // that it would run any: what the forward did before is not measured.
  virtual void begin_at_layer(const ShapeKey& shape) = 0;
  // At a forward's begin: whether the open step's still waits for its backward, which may be this
  // one's too. True: begin_at_layer() reckons what the step begins with from here, and not from its
  // own call.
  virtual bool waits() = 0;
  // Whether a backward has come to the first layer of the open step. Where none is under way the
  // step lacks no more than its optimizer's: end_step() before another model's step begins on the
  // device, which would cut this one short (nothing is learned of it then).
  virtual bool went_back() = 0;
  // After the optimizer's step, or after backward where no optimizer step follows.
  virtual StepReport end_step() = 0;

  // Runs a layer under the plan of the current step: which one follows from the order of the calls,
  // `index` is for the reader. Outside a step, inside another layer, or with gradients off, it just
  // calls `function`. Exceptions of `function` pass through.
  virtual std::vector<at::Tensor> layer(std::int64_t index, const LayerFunction& function,
                                        std::vector<at::Tensor> inputs,
                                        const LayerOptions& options) = 0;

  // The two halves of layer(), for callers whose forward is not a function to pass: hooks of a
  // module system. What runs on this thread between them is the layer; `rerun` runs it again. True:
  // leave_layer() (or abandon_layers(), where the forward threw) must follow on the same thread.
  virtual bool enter_layer(const LayerFunction& rerun, const std::vector<at::Tensor>& inputs,
                           const LayerOptions& options) noexcept = 0;
  // Throws the cause of an Interruption, and nothing else: the layer is then left all the same.
  virtual void leave_layer(const std::vector<at::Tensor>& outputs) = 0;
  // Ends a layer that was entered and never left. Harmless where there is none.
  virtual void abandon_layers() noexcept = 0;

  // For callers to whom each layer call has a price of its own (hooks of a module system). Right
  // after begin_step(): whether the step's layers are all to be kept without hooks, now and in the
  // backward. Then they may ask for rest(): true where steps of the same shape and `kind` (whatever
  // the caller tells steps apart by) have shown that they need what is predicted. The layers of a
  // step that rests may be passed by. `same_model`: modules, switches and which parameters want
  // gradients are as in the steps before. rested() follows when the forward is over, with how many
  // were passed by and what the model gave; where it does not, the step counts as one that threw.
  // Before that, once, it may be told less than 0 and what the first layer gave through which a
  // gradient may flow: until one gets there the step's backward goes on.
  // In front of a layer, so many having been passed by, passes() is false where more memory is in
  // use than was there; wake() ends the rest where the layer is not the one of those steps, or is
  // given other inputs. It and those behind it are to be entered then.
  [[nodiscard]] virtual bool may_rest() const = 0;
  virtual bool rest(std::int64_t kind, bool same_model) = 0;
  virtual bool passes(std::int64_t passed) noexcept = 0;
  virtual void wake(std::int64_t passed) noexcept = 0;
  virtual void rested(std::int64_t passed, const std::vector<at::Tensor>& outputs) noexcept = 0;

  // One tensor in, one tensor out.
  at::Tensor layer(std::int64_t index, const std::function<at::Tensor(const at::Tensor&)>& function,
                   const at::Tensor& input, const LayerOptions& options = {}) {
    return layer(
        index,
        [function](const std::vector<at::Tensor>& inputs) {
          return std::vector<at::Tensor>{function(inputs[0])};
        },
        std::vector<at::Tensor>{input}, options)[0];
  }

  // Runs the modules of a torch::nn::Sequential one by one, each as one layer.
  template <typename Sequential>
  at::Tensor run(Sequential& sequential, at::Tensor input) {
    std::int64_t index = 0;
    for (auto item = sequential->begin(); item != sequential->end(); ++item, ++index) {
      auto module = *item;  // AnyModule: shared ownership, lives until the backward
      input = layer(
          index, [module](const at::Tensor& x) mutable { return module.forward(x); }, input,
          module_options(*module.ptr()));
    }
    return input;
  }

  // Runs the modules of a torch::nn::ModuleList, all of type `Module` with forward(Tensor).
  template <typename Module, typename ModuleList>
  at::Tensor run_as(ModuleList& list, at::Tensor input) {
    std::int64_t index = 0;
    for (const auto& item : *list) {
      auto module = std::dynamic_pointer_cast<Module>(item);
      TORCH_CHECK(module, "pudica: module ", index, " of the list is a ", item->name(),
                  ", expected the type given to run_as");
      input = layer(
          index, [module](const at::Tensor& x) { return module->forward(x); }, input,
          module_options(*module));
      ++index;
    }
    return input;
  }

  // Tensors that live for long and may have been made before the meter was installed (optimizer
  // state): counted from now on while they live. Those counted already are passed over.
  virtual void count_residents(const std::vector<at::Tensor>& tensors) = 0;

  // Takes effect at the next step.
  virtual void set_budget(Bytes budget_bytes) = 0;
  [[nodiscard]] virtual Policy& policy() = 0;
  // Failures inside pudica that were contained.
  [[nodiscard]] virtual std::int64_t failures() const = 0;
  // Leaves no hook and no cap. Idempotent; also done by the destructor. Frames of a forward whose
  // backward has not run yet stay usable.
  virtual void detach() = 0;

 private:
  template <typename M>
  static LayerOptions module_options(const M& module) {
    LayerOptions options{module.name(), module.buffers()};
    for (const auto& parameter : module.parameters()) {
      options.layer_class += '|';
      for (const auto size : parameter.sizes()) options.layer_class += std::to_string(size) + 'x';
    }
    return options;
  }
};

// Attaches to this process's allocator and autograd engine. With PUDICA_DISABLE=1 the handle is
// inert. Errors: kInvalidArgument (negative budget, a device that is neither CPU nor CUDA, a rule
// that names no operator of this process),
// kUnavailable (the hook layer's self-test failed; no such device, no CUDA part in this build, or
// an allocator whose blocks cannot be counted; the message says which).
Result<std::unique_ptr<Handle>> attach(AttachOptions options);

// Counts the operators that this process runs, each for what it is reckoned to take from its name
// and its arguments' sizes: the same program gives the same times on every machine, whatever its
// speed and load. One clock a process. While it lives each operator takes a microsecond more.
std::shared_ptr<WorkClock> operator_clock();

// Bytes in use now and the highest since the last reset on a device, as the budget counts them.
// Works with and without an attached handle. On CPU only bytes allocated after the first call of
// attach() or install_meter() are seen.
void install_meter();
// The same for a device, which it returns with its index: the current one where it has none. For a
// CUDA device it loads libpudica_torch_cuda. Errors: kInvalidArgument (neither CPU nor CUDA),
// kUnavailable (no such device here, or no CUDA part; says which).
Result<c10::Device> install_meter(c10::Device device);
Bytes bytes_in_use(c10::Device device);
Bytes peak_bytes_in_use(c10::Device device);
void reset_peak_bytes(c10::Device device);

// New segments of torch's CUDA allocator grow and shrink by pages from now on ("expandable"),
// whatever was set; its other settings stay. Under a budget they do of themselves, unless the
// user's settings say expandable_segments:False. Errors: as of install_meter(); kInvalidArgument
// (not a CUDA device), kUnavailable (the device cannot map pages, or torch refuses; says which).
Result<c10::Device> expand_segments(c10::Device device);

}  // namespace pudica
