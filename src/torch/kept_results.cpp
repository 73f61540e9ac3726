#include "torch/kept_results.h"

#include <algorithm>

#include <ATen/core/enum_tag.h>

#include "torch/frame_versions.h"
#include "torch/menu_rules.h"
#include "torch/rebound.h"

namespace pudica::hooks {
namespace {

constexpr std::uint64_t kSeed = 0xcbf29ce484222325ULL;

const c10::StorageImpl* address_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

bool is_held(const c10::IValue& value) { return value.isTensor() && has_bytes(value.toTensor()); }

template <typename F>
void each_tensor_from(const torch::jit::Stack& stack, std::size_t base, const F& visit) {
  for (std::size_t i = base; i < stack.size(); ++i) each_tensor(stack[i], visit);
}

}  // namespace

KeptResults::KeptResults(Names operators, c10::Device device)
    : operators_(std::move(operators)), device_(device) {}

bool KeptResults::Result::has(const c10::StorageImpl* storage) const {
  return std::ranges::any_of(values, [storage](const c10::IValue& value) {
    return is_held(value) && address_of(value.toTensor()) == storage;
  });
}

void KeptResults::begin_forward(const std::vector<at::Tensor>& arguments) {
  results_.clear();
  begin(arguments, /*forward=*/true, /*once=*/false);
}

// From here on version counters tell of writes; until here operators did, but for those that pass
// no dispatcher (kernels of the user's own), which leave more versions than were seen.
void KeptResults::end_forward() {
  std::erase_if(results_, [](Result& result) {
    for (const c10::IValue& value : result.values) {
      if (is_held(value)) result.versions.push_back(version_of(value.toTensor()));
    }
    const auto seen = static_cast<std::uint32_t>(result.writes.size());
    return std::ranges::any_of(result.versions,
                               [seen](std::uint32_t version) { return version > seen; });
  });
}

void KeptResults::begin_rerun(const std::vector<at::Tensor>& arguments, bool once) {
  begin(arguments, /*forward=*/false, once);
}

void KeptResults::begin(const std::vector<at::Tensor>& arguments, bool forward, bool once) {
  forward_ = forward;
  once_ = once;
  previous_ = signature_ = kSeed;
  made_writes_.clear();
  dependent_.clear();
  for (const at::Tensor& tensor : arguments) {
    if (has_bytes(tensor)) dependent_.insert(address_of(tensor));
  }
}

bool KeptResults::depends_on_arguments(const torch::jit::Stack& stack, std::size_t base) const {
  bool depends = false;
  each_tensor_from(stack, base, [&](const at::Tensor& tensor) {
    depends = depends || dependent_.contains(address_of(tensor));
  });
  return depends;
}

// An address may have been another storage's, which is gone.
void KeptResults::note_made(const torch::jit::Stack& stack, std::size_t base, bool depends) {
  each_tensor_from(stack, base, [&](const at::Tensor& tensor) {
    if (depends) {
      dependent_.insert(address_of(tensor));
    } else {
      dependent_.erase(address_of(tensor));
    }
  });
}

bool KeptResults::is_named_one(const OperatorFacts& facts) const {
  if (facts.writes_any || facts.only_views) return false;
  return std::ranges::any_of(
      *operators_, [&facts](const std::string& rule) { return is_named(rule, facts.name); });
}

void KeptResults::record(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         torch::jit::Stack* stack) {
  if (keys.has(c10::DispatchKey::Python)) {
    results_.clear();  // a mode or a subclass may run anything in its place
    run_below_tape(op, keys, stack);
    return;
  }
  const OperatorFacts& facts = facts_of(op);
  const std::size_t base = stack->size() - facts.arguments;
  const bool depends = depends_on_arguments(*stack, base);
  if (depends) {
    previous_ = signature_;
    signature_ = (signature_ ^ facts.hash) * 0x100000001b3ULL;
  }
  if (!depends) {
    run_below_tape(op, keys, stack);
  } else if (forward_) {
    run_forward(op, keys, stack, facts);
  } else if (!answer(stack, facts)) {
    run_below_tape(op, keys, stack);
  }
  note_made(*stack, base, depends);
}

void KeptResults::run_forward(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              torch::jit::Stack* stack, const OperatorFacts& facts) {
  const bool holds = is_named_one(facts);
  if (!holds && results_.empty()) return run_below_tape(op, keys, stack);
  const std::size_t base = stack->size() - facts.arguments;
  Uses uses;
  for (std::size_t i = 0; i < facts.arguments; ++i) {
    each_tensor((*stack)[base + i], [&](const at::Tensor& tensor) {
      uses.push_back({address_of(tensor), facts.writes[i]});
    });
  }
  const RandomMark before = RandomMark::now(device_);
  run_below_tape(op, keys, stack);
  Call call{facts, uses};
  const RandomMark after = RandomMark::now(device_);
  call.drew = !(before == after);
  call.reshapes = facts.not_repeatable || op.hasTag(at::Tag::inplace_view);
  const bool one = stack->size() == base + 1 && is_held(stack->back());
  if (one) call.only_result = address_of(stack->back().toTensor());
  std::erase_if(results_, [&](Result& result) { return !note_call(call, result); });
  auto result = holds ? held(*stack, base, uses) : std::nullopt;
  if (!result) return;
  result->call = result->latest = signature_;
  if (call.drew) {
    result->random_then = RandomState::capture(device_);
    // The CPU's is the process's: others may have drawn from it by the time of the rerun.
    if (before.is_same_on_cpu(after)) result->random_then->forget();
  }
  results_.push_back(std::move(*result));
}

bool KeptResults::note_call(const Call& call, Result& result) const {
  std::size_t reads = 0;
  std::size_t writes = 0;
  for (const Use& use : call.uses) {
    if (result.has(use.storage)) ++(use.written ? writes : reads);
  }
  if (reads + writes == 0) return true;
  if (call.facts.foreign) return false;  // may write whatever it is given
  const bool gives_it_back = call.only_result != nullptr && result.has(call.only_result);
  if (writes == 0) {
    // A view reads nothing yet, whether its schema says that it is one or not.
    if (!gives_it_back && !call.facts.only_views) result.is_read = true;
    if (result.latest == previous_) result.latest = signature_;
    return true;
  }
  const bool writes_it_alone = std::ranges::count(call.facts.writes, true) == 1 && gives_it_back;
  if (!writes_it_alone || reads > 0 || call.drew || call.reshapes || result.is_read) return false;
  // A rerun that had other operators in between would not know the write, and make it again.
  if (result.latest != previous_) return false;
  result.writes.push_back(signature_);
  result.latest = signature_;
  return true;
}

std::optional<KeptResults::Result> KeptResults::held(const torch::jit::Stack& stack,
                                                     std::size_t base, const Uses& arguments) {
  Result result;
  for (std::size_t i = base; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isList()) return std::nullopt;
    if (!is_held(value)) {
      result.values.push_back(value);
      continue;
    }
    const at::Tensor& tensor = value.toTensor();
    const auto alias = std::ranges::find(arguments, address_of(tensor), &Use::storage);
    if (alias != arguments.end() || tensor.is_inference()) return std::nullopt;
    result.values.emplace_back(tensor.tensor_data());  // shares bytes and version counter
  }
  return result;
}

// A write of the forward is in what was answered: what the operator is given is what it gives back.
bool KeptResults::answer_write(torch::jit::Stack* stack, const OperatorFacts& facts) const {
  if (!facts.writes_any || !made_writes_.contains(signature_)) return false;
  const std::size_t base = stack->size() - facts.arguments;
  const auto argument = std::ranges::find(facts.writes, true) - facts.writes.begin();
  c10::IValue written = (*stack)[base + static_cast<std::size_t>(argument)];
  stack->resize(base);
  stack->push_back(std::move(written));
  return true;
}

bool KeptResults::answer(torch::jit::Stack* stack, const OperatorFacts& facts) {
  if (answer_write(stack, facts)) return true;
  const auto found = std::ranges::find(results_, signature_, &Result::call);
  if (found == results_.end()) return false;
  auto version = found->versions.begin();
  for (const c10::IValue& value : found->values) {
    // The user wrote an output since.
    if (is_held(value) && version_of(value.toTensor()) != *version++) return false;
  }
  stack->resize(stack->size() - facts.arguments);
  for (const c10::IValue& value : found->values) {
    stack->push_back(is_held(value) ? rebound(value.toTensor(), value.toTensor().storage())
                                    : value);
  }
  made_writes_.insert(found->writes.begin(), found->writes.end());
  if (found->random_then) found->random_then->apply();
  if (once_) results_.erase(found);
  return true;
}

}  // namespace pudica::hooks
