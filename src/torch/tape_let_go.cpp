// Letting saved storages go while the layer still runs, and taking them back.
#include <algorithm>
#include <limits>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "torch/flag_guard.h"
#include "torch/menu_rules.h"
#include "torch/meter.h"
#include "torch/tape.h"

namespace pudica::hooks {

void Tape::follow(Following following) {
  followed_ = std::move(following);
  if (device_.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

void Tape::remember(Event event, std::int32_t storage, std::int32_t version) {
  const auto mix = [this](std::uint64_t value) {
    history_ = (history_ ^ value) * 0x100000001b3ULL;
  };
  mix(signature_);
  mix(static_cast<std::uint64_t>(event) << 32U | static_cast<std::uint32_t>(storage));
  mix(static_cast<std::uint32_t>(version));
}

bool Tape::has_let_go() const {
  return std::ranges::any_of(
      stored_, [](const Stored& stored) { return stored.let_go || stored.relied_on; });
}

Tape::~Tape() {
  const FlagGuard searching(this_thread_is_searching());
  for (Stored& stored : stored_) stored.bits_when_saved.reset();
}

void Tape::note_bits(std::int32_t storage) {
  if (!timed_ || storage == kNone) return;
  Stored& stored = stored_[index(storage)];
  if (stored.external || stored.slots != 1) return;
  const FlagGuard searching(this_thread_is_searching());
  stored.bits_when_saved = encode_bits(c10::Storage(stored.alive.lock()), stored.item_bytes);
  if (!stored.bits_when_saved || stored.contents() == Contents::kTruthValues) return;
  if (!has_both_values(*stored.bits_when_saved)) stored.bits_when_saved.reset();
}

void Tape::check_sequence() {
  sequence_.push_back(signature_);
  if (!follows()) return;
  const auto& sequence = *followed_.sequence;
  bool next = position_ < sequence.size() && sequence[position_] == signature_;
  ++position_;
  if (stream_) {
    next = next && c10::impl::VirtualGuardImpl(device_.type()).getStream(device_) == *stream_;
  }
  if (!next) deviate();
}

// A sequence of operators does not tell which tensors they get.
void Tape::check_writes(const Entry& entry) {
  if (!follows()) return;
  for (const Reference& reference : entry.references) {
    if (reference.written && stored_[index(reference.storage)].relied_on) return deviate();
  }
}

void Tape::deviate() {
  if (followed_.before_deviation) followed_.before_deviation();
  followed_ = {};
}

bool Tape::may_run_again(const Entry& entry) const {
  if (entry.random || entry.facts->not_repeatable) return false;
  return followed_.keep_operators == nullptr ||
         std::ranges::none_of(*followed_.keep_operators, [&entry](const std::string& rule) {
           return is_named(rule, entry.facts->name);
         });
}

// Whether it can be read as it is now when what was let go is recovered.
bool Tape::can_be_relied_on(const Reference& reference) const {
  const Stored& stored = stored_[index(reference.storage)];
  if (reference.written || reference.version != stored.version) return false;
  if (stored.external) return true;
  const bool kept = stored.slots > 0 && (!stored.let_go || stored.bits);
  return kept && stored.rerun_version == kNone;
}

bool Tape::may_be_made_again(std::int32_t storage, const Rerun& plan) const {
  const Stored& stored = stored_[index(storage)];
  const bool relied_on = stored.relied_on && !stored.let_go;
  if (relied_on || plan.held.contains(storage) || stored.bits) return false;
  return !stored.external && !stored.strange && !stored.writers.empty();
}

// What the operator reads is there to be read as it is, or is made again as well.
void Tape::plan_inputs(const Entry& entry, Rerun& plan) const {
  for (const Reference& reference : entry.references) {
    if (!plan.versions.contains(reference.storage) && can_be_relied_on(reference)) {
      plan.held.insert(reference.storage);
    } else {
      plan.open.emplace_back(reference.storage, reference.version);
    }
  }
}

// A storage is either read as it is or made again, never both: what was settled for the one stays
// true whatever follows, so that each operator is looked at once.
bool Tape::plan_rerun(std::int32_t storage, Rerun& plan) const {
  plan.open.emplace_back(storage, stored_[index(storage)].version);
  while (!plan.open.empty()) {
    const auto [number, version] = plan.open.back();
    plan.open.pop_back();
    const Stored& stored = stored_[index(number)];
    const auto planned = plan.versions.find(number);
    const bool again = planned != plan.versions.end();
    const std::int32_t from = (again ? planned->second : stored.rerun_version) + 1;
    if (version < from) continue;
    if (!may_be_made_again(number, plan)) return false;
    plan.versions[number] = version;
    for (std::int32_t v = from; v <= version; ++v) {
      const std::int32_t writer = stored.writers[index(v)];
      if (writer == kNone) return false;
      const Entry& entry = entries_[index(writer)];
      if (!may_run_again(entry)) return false;
      if (v == 0 && entry.facts->makes_empty) return false;  // nobody was seen to write it
      plan_inputs(entry, plan);
    }
  }
  return true;
}

bool Tape::let_go(std::int32_t storage) {
  const Stored& saved = stored_[index(storage)];
  if (!follows() || saved.saved_early || saved.relied_on) return false;
  Rerun plan;
  if (!plan_rerun(storage, plan)) return false;
  std::vector<std::pair<Stored*, c10::Storage>> held;
  for (const std::int32_t number : plan.held) {
    Stored& stored = stored_[index(number)];
    if (stored.bits) continue;
    c10::Storage bytes = stored.live;
    if (!bytes) bytes = c10::Storage(stored.alive.lock());
    if (!bytes) return false;
    held.emplace_back(&stored, std::move(bytes));
  }
  // Slots may be released before the layer ends: what is relied on is held here too.
  for (auto& [stored, bytes] : held) {
    stored->live = std::move(bytes);
    stored->live_version = stored->version;
  }
  for (const std::int32_t number : plan.held) stored_[index(number)].relied_on = true;
  for (const auto& [number, version] : plan.versions) {
    stored_[index(number)].rerun_version = version;
  }
  stored_[index(storage)].relied_on = true;
  stored_[index(storage)].let_go = true;
  return true;
}

bool Tape::let_go_as_bits(std::int32_t storage) {
  Stored& stored = stored_[index(storage)];
  if (!follows() || stored.external || stored.saved_early) return false;
  const c10::Storage bytes(stored.alive.lock());
  stored.bits = encode_bits(bytes, stored.item_bytes, stored.contents());
  if (!stored.bits) return false;
  stored.live = c10::Storage();
  stored.live_version = kNone;
  stored.let_go = true;
  stored.relied_on = true;
  return true;
}

c10::Storage Tape::take_back(std::int32_t storage) {
  if (auto own = stored_[index(storage)].alive.lock()) return c10::Storage(std::move(own));
  return recover(storage);
}

void Tape::forget_remade(const StorageSet& needed) {
  const std::vector<std::int32_t> oldest = oldest_wanted(needed);
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    Stored& stored = stored_[k];
    if (stored.external || stored.rerun_version == kNone) continue;
    if (oldest[k] != std::numeric_limits<std::int32_t>::max()) continue;
    stored.live = c10::Storage();
    stored.live_version = kNone;
  }
}

void Tape::end_following() {
  followed_ = {};
  for (Stored& stored : stored_) {
    if (stored.let_go) stored.bits.reset();
    stored.let_go = false;
    stored.relied_on = false;
    stored.rerun_version = kNone;
    if (stored.external) continue;
    stored.live = c10::Storage();
    stored.live_version = kNone;
  }
}

}  // namespace pudica::hooks
