// Recording: operators as they run, storages as they are made, written and saved.
#include "torch/tape.h"

#include <algorithm>

#include <torch/csrc/autograd/variable.h>

#include "torch/random_state.h"
#include "torch/tape_dispatch.h"
#include "torch/work_clock.h"

namespace pudica::hooks {
namespace {

c10::StorageImpl* address_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// The tensor without its bytes: sizes, strides and type to be bound to recovered ones.
at::Tensor without_storage(const at::Tensor& tensor) {
  static const auto* const nothing = new c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, at::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr,
      false));
  auto shell = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(c10::VariableVersion::DISABLED), /*allow_tensor_metadata_change=*/true);
  shell->set_storage_keep_dtype(*nothing);
  return at::Tensor(std::move(shell));
}

bool is_bool(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBool; }

// Bools that it is given may have other bytes (a view of another type), and be copied.
bool computes_truth_values(const Tape::Entry& entry, const at::Tensor& result) {
  if (!is_bool(result) || !entry.facts->makes_truth_values) return false;
  if (result.storage().nbytes() != static_cast<std::size_t>(result.numel())) return false;
  bool is_given_some = false;
  for (const c10::IValue& argument : entry.arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      is_given_some = is_given_some || is_bool(tensor);
    });
  }
  return !is_given_some;
}

}  // namespace

Tape::Tape(c10::Device device, bool timed, HostClock clock)
    : device_(device), timed_(timed), clock_(std::move(clock)) {
  constexpr std::size_t kUsual = 48;  // operators of a transformer's layer
  entries_.reserve(kUsual);
  stored_.reserve(kUsual);
}

std::int32_t Tape::find(const at::Tensor& tensor) const {
  const auto found = by_address_.find(address_of(tensor));
  return found == by_address_.end() ? kNone : found->second;
}

std::int32_t Tape::add(const at::Tensor& tensor, bool external) {
  const auto number = static_cast<std::int32_t>(stored_.size());
  Stored& stored = stored_.emplace_back();
  stored.address = address_of(tensor);
  stored.external = external;
  stored.bytes = static_cast<std::int64_t>(stored.address->nbytes());
  stored.item_bytes = static_cast<std::int64_t>(tensor.element_size());
  if (external) {
    stored.parameter =
        tensor.requires_grad() && std::ranges::find(arguments_, stored.address) == arguments_.end();
    stored.live = tensor.storage();
    stored.live_version = 0;
  } else {
    // Keeps the address from being used again, not the bytes.
    stored.alive = tensor.storage().getWeakStorageImpl();
  }
  by_address_[stored.address] = number;
  return number;
}

void Tape::arguments(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (has_bytes(tensor)) arguments_.push_back(address_of(tensor));
  }
}

at::Tensor Tape::refer(Entry& entry, const at::Tensor& tensor, Reference where) {
  where.storage = find(tensor);
  if (where.storage == kNone) where.storage = add(tensor, /*external=*/true);
  const Stored& stored = stored_[index(where.storage)];
  where.version = stored.version;
  entry.references.push_back(where);
  if (stored.external && !tensor.is_inference()) {
    const c10::VariableVersion& version = torch::autograd::impl::version_counter(tensor);
    entry.external_versions.emplace_back(version, version.current_version());
  }
  return without_storage(tensor);
}

c10::IValue Tape::hold_argument(Entry& entry, const c10::IValue& value, std::uint16_t argument) {
  Reference where;
  where.argument = argument;
  where.written = entry.facts->writes[argument];
  if (value.isTensor() && has_bytes(value.toTensor())) return refer(entry, value.toTensor(), where);
  if (value.isTensorList()) {
    c10::List<at::Tensor> held;
    for (const at::Tensor& tensor : value.toTensorList()) {
      where.element = static_cast<std::int16_t>(held.size());
      held.push_back(has_bytes(tensor) ? refer(entry, tensor, where) : tensor);
    }
    return held;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> held;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      where.element = static_cast<std::int16_t>(held.size());
      if (tensor && has_bytes(*tensor)) {
        held.push_back(refer(entry, *tensor, where));
      } else {
        held.push_back(tensor);
      }
    }
    return held;
  }
  return value.isList() ? value.deepcopy() : value;
}

// Fresh storages are the entry's outputs; those inside lists cannot be told apart again.
void Tape::note_results(std::int32_t entry, const torch::jit::Stack& stack, std::size_t base,
                        bool& matters) {
  for (std::size_t result = base; result < stack.size(); ++result) {
    const bool single = stack[result].isTensor();
    each_tensor(stack[result], [&](const at::Tensor& tensor) {
      if (find(tensor) != kNone) return;
      const std::int32_t made = add(tensor, /*external=*/false);
      Stored& stored = stored_[index(made)];
      stored.writers.push_back(single ? entry : kNone);
      stored.strange = !single;
      if (!single) return;
      stored.truth_values = computes_truth_values(entries_[index(entry)], tensor);
      entries_[index(entry)].outputs.push_back({static_cast<std::uint16_t>(result - base), made});
      matters = true;
    });
  }
}

// Its seconds where the tape is timed, else 0: reading the clock is a system call.
double Tape::run_now(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) const {
  if (!timed_) {
    run_below_tape(op, keys, stack);
    return 0;
  }
  synchronize(device_);
  const HostInstant begin = clock_.now();
  run_below_tape(op, keys, stack);
  synchronize(device_);
  const HostInstant end = clock_.now();
  return device_.is_cpu() ? end.seconds_since(begin) : end.passed_since(begin);
}

void Tape::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
  if (keys.has(c10::DispatchKey::Python)) {
    incomplete_ = true;
    deviate();
    run_below_tape(op, keys, stack);
    return;
  }
  const OperatorFacts& facts = facts_of(op);
  signature_ = (signature_ ^ facts.hash) * 0x100000001b3ULL;
  check_sequence();
  if (facts.only_views) {
    run_below_tape(op, keys, stack);
    return;
  }
  const std::size_t base = stack->size() - facts.arguments;
  const auto number = static_cast<std::int32_t>(entries_.size());
  bool random = false;
  {
    Entry& entry = entries_.emplace_back(op);
    entry.facts = &facts;
    entry.keys = keys;
    entry.arguments.reserve(facts.arguments);
    for (std::size_t i = 0; i < facts.arguments; ++i) {
      const c10::IValue& value = (*stack)[base + i];
      random = random || value.isGenerator();
      entry.arguments.push_back(hold_argument(entry, value, static_cast<std::uint16_t>(i)));
    }
    for (const Reference& reference : entry.references) {
      const Event event = reference.written ? Event::kWritten : Event::kRead;
      remember(event, reference.storage, reference.version);
    }
    check_writes(entry);
  }
  std::optional<RandomMark> before;
  if (timed_ || facts.may_draw.load(std::memory_order_relaxed)) before = RandomMark::now(device_);
  const double seconds = run_now(op, keys, stack);
  Entry& entry = entries_[index(number)];
  entry.seconds = seconds;
  total_seconds_ += seconds;
  const bool drew = before && *before != RandomMark::now(device_);
  if (drew) facts.may_draw.store(true, std::memory_order_relaxed);
  entry.random = random || drew;
  bool matters = false;
  for (const Reference& reference : entry.references) {
    if (!reference.written) continue;
    Stored& stored = stored_[index(reference.storage)];
    matters = true;
    if (stored.version != reference.version) continue;  // the same storage twice in one call
    ++stored.version;
    stored.writers.push_back(number);
    if (stored.slots > 0) stored.saved_early = true;
  }
  note_results(number, *stack, base, matters);
  if (!matters) entries_.pop_back();
}

std::int32_t Tape::slot(const at::Tensor& tensor) {
  if (!has_bytes(tensor)) return kNone;
  std::int32_t number = find(tensor);
  if (number == kNone) number = add(tensor, /*external=*/true);
  Stored& stored = stored_[index(number)];
  ++stored.slots;
  remember(Event::kSaved, number, stored.version);
  return number;
}

void Tape::unslot(std::int32_t storage) {
  Stored& stored = stored_[index(storage)];
  --stored.slots;
  remember(Event::kReleased, storage, stored.version);
}

void Tape::escape(const at::Tensor& output) {
  if (!has_bytes(output)) return;
  const std::int32_t number = find(output);
  if (number != kNone) stored_[index(number)].escapes = true;
}

}  // namespace pudica::hooks
