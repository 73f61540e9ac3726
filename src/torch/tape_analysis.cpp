// What can be recovered, and what recovering it takes.
#include <utility>

#include "torch/tape.h"

namespace pudica::hooks {
namespace {

std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

// Gathers what recovering the storages of `drop` takes. What of `split` is kept is recovered all
// the same.
class Closing {
 public:
  Closing(const Tape& tape, const StorageSet& drop, const StorageSet& split)
      : tape_(tape), drop_(drop), split_(split) {
    needed_version_.assign(tape.stored().size(), Tape::kNone);
    out.entries.assign(tape.entries().size(), false);
    out.held.assign(tape.stored().size(), false);
    for (std::size_t k = 0; k < tape.stored().size(); ++k) {
      if (drop[k]) open_.emplace_back(static_cast<std::int32_t>(k), tape.stored()[k].version);
    }
  }

  // False: it cannot be done.
  bool run() {
    while (!open_.empty()) {
      const auto [storage, version] = open_.back();
      open_.pop_back();
      const std::int32_t from = needed_version_[index(storage)] + 1;
      if (version < from) continue;
      needed_version_[index(storage)] = version;
      const Tape::Stored& stored = tape_.stored()[index(storage)];
      if (stored.external) return false;
      for (std::int32_t v = from; v <= version; ++v) {
        const std::int32_t writer = stored.writers[index(v)];
        if (writer == Tape::kNone || !take_in(index(writer))) return false;
      }
    }
    return true;
  }

  // At some version.
  [[nodiscard]] bool recovers(std::size_t storage) const {
    return needed_version_[storage] != Tape::kNone;
  }

  Closure out;

 private:
  // False: the operator cannot run again.
  bool take_in(std::size_t number) {
    if (out.entries[number]) return true;
    const Tape::Entry& entry = tape_.entries()[number];
    if (entry.random || entry.facts->not_repeatable || entry.pruned) return false;
    out.entries[number] = true;
    out.seconds += entry.seconds;
    ++out.operators;
    for (const Tape::Reference& reference : entry.references) {
      if (is_available(reference)) {
        out.held[index(reference.storage)] = true;
      } else {
        open_.emplace_back(reference.storage, reference.version);
      }
    }
    return true;
  }

  [[nodiscard]] bool is_available(const Tape::Reference& reference) const {
    const std::size_t k = index(reference.storage);
    const Tape::Stored& stored = tape_.stored()[k];
    if (reference.written || reference.version != stored.version) return false;
    return stored.external || (stored.slots > 0 && !drop_[k] && !split_[k]);
  }

  const Tape& tape_;
  const StorageSet& drop_;
  const StorageSet& split_;
  std::vector<std::int32_t> needed_version_;                 // by storage
  std::vector<std::pair<std::int32_t, std::int32_t>> open_;  // storages, up to a version
};

}  // namespace

// Every writer up to the version is recorded and can be run again.
bool Tape::written_by(const Stored& stored, std::int32_t version,
                      const std::vector<bool>& repeatable) const {
  if (stored.external || stored.strange || stored.writers.empty()) return false;
  if (version == 0 && stored.writers[0] != kNone &&
      entries_[index(stored.writers[0])].facts->makes_empty) {
    return false;  // nobody was seen to write it
  }
  for (std::int32_t v = 0; v <= version; ++v) {
    const std::int32_t writer = stored.writers[index(v)];
    if (writer == kNone || !repeatable[index(writer)]) return false;
  }
  return true;
}

StorageSet Tape::recoverable() const {
  std::vector<bool> repeatable(entries_.size(), false);
  // One pass in order: an entry's inputs were made before it.
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = entries_[e];
    bool can = !entry.random && !entry.facts->not_repeatable;
    for (const Reference& reference : entry.references) {
      if (!can) break;
      const Stored& stored = stored_[index(reference.storage)];
      if (stored.external) {
        can = reference.version == stored.version && !reference.written;
        continue;
      }
      if (written_by(stored, reference.version, repeatable)) continue;
      // A saved tensor that is always kept answers readers of its final version.
      const bool kept = stored.slots > 0 && reference.version == stored.version &&
                        !reference.written && !written_by(stored, stored.version, repeatable);
      can = kept;
    }
    repeatable[e] = can;
  }
  StorageSet out(stored_.size(), false);
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    const Stored& stored = stored_[k];
    out[k] = !incomplete_ && stored.slots > 0 && !stored.saved_early &&
             written_by(stored, stored.version, repeatable);
  }
  return out;
}

Closure Tape::closure(const StorageSet& drop) const {
  StorageSet split(stored_.size(), false);
  // A kept storage that is also needed at an older version is recovered apart; each round splits
  // one more at least.
  for (std::size_t round = 0; round <= stored_.size(); ++round) {
    Closing closing(*this, drop, split);
    if (!closing.run()) break;
    bool changed = false;
    for (std::size_t k = 0; k < stored_.size(); ++k) {
      if (!closing.recovers(k) || !closing.out.held[k] || stored_[k].external) continue;
      split[k] = true;
      changed = true;
    }
    if (!changed) return std::move(closing.out);
  }
  Closure none;
  none.feasible = false;
  none.entries.assign(entries_.size(), false);
  none.held.assign(stored_.size(), false);
  return none;
}

}  // namespace pudica::hooks
