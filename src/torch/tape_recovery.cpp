// Running operators again, as few and as late as can be.
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "torch/rebound.h"
#include "torch/tape.h"
#include "torch/tape_dispatch.h"

namespace pudica::hooks {
namespace {

constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

// A list argument of its own: what runs again must not write into the recorded one.
c10::IValue copy_of(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorList().copy();
  if (value.isOptionalTensorList()) return value.toOptionalTensorList().copy();
  return value.isList() ? value.deepcopy() : value;
}

// Whether a version that is to be made is not there already; `wanted`: the oldest that is wanted. A
// newer one does not give back an older.
bool lacks(const Tape::Stored& stored, std::int32_t version, std::int32_t wanted, bool by_pinned) {
  if (wanted == kNever) return false;
  if (wanted == stored.version && stored.pinned) return false;
  if (!stored.live || (by_pinned && !stored.external)) return true;
  return stored.live_version < version || stored.live_version > wanted;
}

// Of what an operator reads; true: an older version of something than was wanted before.
bool want_inputs(const Tape::Entry& entry, std::vector<std::int32_t>& oldest) {
  bool older = false;
  for (const Tape::Reference& reference : entry.references) {
    std::int32_t& version = oldest[static_cast<std::size_t>(reference.storage)];
    older = older || reference.version < version;
    version = std::min(version, reference.version);
  }
  return older;
}

}  // namespace

void Tape::Stored::let_go_live() {
  if (pinned && !set_aside) return;
  live = std::exchange(set_aside, c10::Storage());
  live_version = live ? version : kNone;
}

void Tape::keep(const Closure& closure, const StorageSet& candidates, const StorageSet& pinned,
                const std::vector<c10::Storage>& bytes_of) {
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    if (closure.entries[e]) continue;
    entries_[e].pruned = true;
    entries_[e].arguments = {};
    entries_[e].external_versions.clear();
  }
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    Stored& stored = stored_[k];
    stored.address = nullptr;
    stored.alive =
        c10::weak_intrusive_ptr<c10::StorageImpl>{c10::intrusive_ptr<c10::StorageImpl>()};
    const bool stays = closure.held[k] || (candidates[k] && pinned[k]);
    stored.pinned = stays;
    if (!stays || stored.bits) {
      stored.live = c10::Storage();
      stored.live_version = kNone;
    } else {
      if (!stored.external) stored.live = bytes_of[k];
      stored.live_version = stored.version;
    }
  }
  by_address_.clear();
}

std::int64_t Tape::droppable_bytes(std::int32_t storage) const {
  const Stored& stored = stored_[index(storage)];
  if (!stored.pinned) return 0;
  return stored.forwards_own().use_count() == 1 ? stored.bytes : 0;
}

std::int64_t Tape::drop(std::int32_t storage) {
  Stored& stored = stored_[index(storage)];
  const std::int64_t bytes = droppable_bytes(storage);
  stored.pinned = false;
  stored.set_aside = c10::Storage();
  stored.live = c10::Storage();
  stored.live_version = kNone;
  return bytes;
}

bool Tape::has_forwards_own(std::int32_t storage) const {
  const Stored& stored = stored_[index(storage)];
  return stored.pinned && stored.live && stored.live_version == stored.version;
}

bool Tape::externals_unchanged() const {
  for (const Entry& entry : entries_) {
    for (const auto& [version, then] : entry.external_versions) {
      if (version.current_version() != then) return false;
    }
  }
  return true;
}

const c10::Storage& Tape::recover(std::int32_t storage) {
  recover_to(storage, stored_[index(storage)].version);
  return stored_[index(storage)].live;
}

const c10::Storage& Tape::recover(std::int32_t storage, StorageSet needed) {
  const Stored& stored = stored_[index(storage)];
  if (stored.live && stored.live_version == stored.version) return stored.live;
  needed[index(storage)] = true;
  sweep_.emplace(Sweep{.needed = std::move(needed), .readers = {}, .runs = {}});
  try {
    const std::vector<std::int32_t> oldest =
        oldest_wanted(sweep_->needed, /*by_pinned=*/false, &sweep_->runs);
    sweep_->readers.assign(stored_.size(), 0);
    for (std::size_t e = 0; e < entries_.size(); ++e) {
      if (!sweep_->runs[e]) continue;
      for (const Reference& reference : entries_[e].references) {
        ++sweep_->readers[index(reference.storage)];
      }
    }
    recover_to(storage, stored.version);
  } catch (...) {
    sweep_.reset();
    throw;
  }
  sweep_.reset();
  return stored.live;
}

// What the operator read or made goes where no other is to read it.
void Tape::sweep_after(const Entry& entry) {
  const auto e = static_cast<std::size_t>(&entry - entries_.data());
  const bool first = sweep_->runs[e];
  sweep_->runs[e] = false;
  for (const Reference& reference : entry.references) {
    if (first) --sweep_->readers[index(reference.storage)];
  }
  const auto let_go = [this](std::int32_t storage) {
    Stored& stored = stored_[index(storage)];
    if (stored.external || sweep_->readers[index(storage)] > 0) return;
    if (stored.pinned || !sweep_->needed[index(storage)]) stored.let_go_live();
  };
  for (const Reference& reference : entry.references) let_go(reference.storage);
  for (const Output& output : entry.outputs) let_go(output.storage);
}

void Tape::recover_to(std::int32_t storage, std::int32_t version) {
  Stored& stored = stored_[index(storage)];
  if (stored.live && stored.live_version == version) return;
  if (stored.set_aside && version == stored.version) return stored.let_go_live();
  if (stored.bits && version == stored.version) {
    stored.live = decode_bits(*stored.bits);
    stored.live_version = version;
    return;
  }
  TORCH_INTERNAL_ASSERT(!stored.external, "pudica: the tape lost a tensor from outside");
  if (!stored.live || stored.live_version > version) {
    if (stored.pinned && !stored.set_aside) stored.set_aside = std::move(stored.live);
    stored.live = c10::Storage();
    stored.live_version = kNone;
  }
  if (sweep_) ++sweep_->readers[index(storage)];
  for (std::int32_t v = stored.live_version + 1; v <= version; ++v) {
    run(entries_[index(stored.writers[index(v)])]);
    TORCH_INTERNAL_ASSERT(stored.live_version == v,
                          "pudica: an operator of the tape did not make what it made before");
  }
  if (sweep_) --sweep_->readers[index(storage)];
}

// All that the operator reads and writes, as it found it. What one of them is made of may be an
// older version of another: that is then made anew, in a storage of its own, and the version that
// was there before is put back. It was not written meanwhile: what an operator finds is the newest
// version of all that went into it.
void Tape::bring_back_inputs(const Entry& entry) {
  c10::SmallVector<c10::Storage, 4> found(entry.references.size());
  // Readers first: a writer may change what they read.
  for (const bool written : {false, true}) {
    for (std::size_t i = 0; i < entry.references.size(); ++i) {
      const Reference& reference = entry.references[i];
      if (reference.written != written) continue;
      recover_to(reference.storage, reference.version);
      found[i] = stored_[index(reference.storage)].live;
    }
  }
  for (std::size_t i = 0; i < entry.references.size(); ++i) {
    Stored& stored = stored_[index(entry.references[i].storage)];
    if (stored.live_version == entry.references[i].version) continue;
    if (stored.set_aside && entry.references[i].version == stored.version) {
      stored.let_go_live();
    } else {
      stored.live = std::move(found[i]);
      stored.live_version = entry.references[i].version;
    }
  }
}

void Tape::push_arguments(const Entry& entry, torch::jit::Stack& stack) const {
  stack.reserve(entry.arguments.size());
  for (const c10::IValue& value : entry.arguments) stack.push_back(copy_of(value));
  for (const Reference& reference : entry.references) {
    const c10::Storage& live = stored_[index(reference.storage)].live;
    c10::IValue& argument = stack[reference.argument];
    if (reference.element == kNone) {
      argument = rebound(argument.toTensor(), live);
      continue;
    }
    const auto element = static_cast<std::size_t>(reference.element);
    if (argument.isTensorList()) {
      auto list = argument.toTensorList();
      list.set(element, rebound(list.get(element), live));
    } else {
      auto list = argument.toOptionalTensorList();
      list.set(element, rebound(*list.get(element), live));
    }
  }
}

void Tape::run(Entry& entry) {
  TORCH_INTERNAL_ASSERT(!entry.pruned, "pudica: an operator of the tape was pruned");
  // It would draw other numbers, and the user's after them.
  TORCH_CHECK(!entry.random && !entry.facts->not_repeatable, "pudica: ", entry.facts->name,
              " does not give the same again");
  for (const auto& [version, then] : entry.external_versions) {
    TORCH_CHECK(version.current_version() == then,
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: it is at version ",
                version.current_version(), "; expected version ", then, " instead (needed by ",
                entry.facts->name, ", which pudica runs again)");
  }
  bring_back_inputs(entry);
  torch::jit::Stack stack;
  push_arguments(entry, stack);
  ++operators_run_;
  {
    const c10::impl::ForceDispatchKeyGuard as_recorded(entry.local_keys);
    const at::AutoGradMode gradients(entry.makes_gradients);
    // Below the dispatcher's own call: profilers and the operator clock are told here.
    RECORD_FUNCTION(std::cref(entry.op.schema()),
                    c10::ArrayRef<const c10::IValue>(stack.data(), stack.size()));
    run_below_tape(entry.op, entry.keys, &stack);
  }
  for (const Output& output : entry.outputs) {
    Stored& stored = stored_[index(output.storage)];
    if (stored.live) continue;
    const at::Tensor& made = stack[output.result].toTensor();
    TORCH_CHECK(made.defined(), "pudica: ", entry.facts->name, " gives back no tensor as result ",
                output.result, " when it is run again");
    stored.live = made.storage();
    stored.live_version = 0;
  }
  for (const Reference& reference : entry.references) {
    Stored& stored = stored_[index(reference.storage)];
    if (reference.written && stored.live_version == reference.version) ++stored.live_version;
  }
  if (sweep_) {
    stack.clear();
    sweep_after(entry);
  }
}

// By storage the oldest version that will be wanted, kNever where none will: what the needed ones
// take to be recovered, back to what is there; `by_pinned`: back to what the forward left.
// `all_runs`: by operator, whether that runs it.
std::vector<std::int32_t> Tape::oldest_wanted(const StorageSet& needed, bool by_pinned,
                                              std::vector<bool>* all_runs) const {
  if (all_runs != nullptr) all_runs->assign(entries_.size(), false);
  std::vector<std::int32_t> oldest(stored_.size(), kNever);
  bool all_there = true;
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    if (!needed[k]) continue;
    oldest[k] = stored_[k].version;
    all_there = all_there && stored_[k].pinned;
  }
  if (all_there) return oldest;  // no operator is to run
  const auto lacks_version = [&](std::int32_t storage, std::int32_t version) {
    return lacks(stored_[index(storage)], version, oldest[index(storage)], by_pinned);
  };
  const auto runs = [&](const Entry& entry) {
    const auto makes = [&](const Output& output) { return lacks_version(output.storage, 0); };
    const auto writes = [&](const Reference& reference) {
      return reference.written && lacks_version(reference.storage, reference.version + 1);
    };
    return std::ranges::any_of(entry.outputs, makes) ||
           std::ranges::any_of(entry.references, writes);
  };
  // Against the order of the operators, and again where an older version turned out to be wanted
  // than a later operator was judged by.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t e = entries_.size(); e-- > 0;) {
      if (entries_[e].pruned || !runs(entries_[e])) continue;
      if (all_runs != nullptr) (*all_runs)[e] = true;
      changed |= want_inputs(entries_[e], oldest);
    }
  }
  return oldest;
}

void Tape::collect(const StorageSet& needed, bool pinned_too) {
  const std::vector<std::int32_t> oldest = oldest_wanted(needed, pinned_too);
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    Stored& stored = stored_[k];
    if (stored.set_aside && oldest[k] >= stored.version) stored.let_go_live();
    if (oldest[k] != kNever || !stored.live || (stored.pinned && !pinned_too)) continue;
    stored.pinned = false;
    stored.let_go_live();
  }
}

void Tape::forget_recovered() {
  for (Stored& stored : stored_) stored.let_go_live();
}

}  // namespace pudica::hooks
