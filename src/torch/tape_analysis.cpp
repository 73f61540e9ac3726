// What can be recovered, and what recovering it takes.
#include "torch/tape.h"

namespace pudica::hooks {

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

bool Tape::close(const StorageSet& drop, const StorageSet& split, Closure& out,
                 std::vector<std::int32_t>& needed_version) const {
  std::vector<std::pair<std::int32_t, std::int32_t>> open;
  for (std::size_t k = 0; k < stored_.size(); ++k) {
    if (drop[k]) open.emplace_back(static_cast<std::int32_t>(k), stored_[k].version);
  }
  const auto available = [&](const Reference& reference) {
    const std::size_t k = index(reference.storage);
    const Stored& stored = stored_[k];
    if (reference.written || reference.version != stored.version) return false;
    return stored.external || (stored.slots > 0 && !drop[k] && !split[k]);
  };
  while (!open.empty()) {
    const auto [storage, version] = open.back();
    open.pop_back();
    const std::int32_t from = needed_version[index(storage)] + 1;
    if (version < from) continue;
    needed_version[index(storage)] = version;
    const Stored& stored = stored_[index(storage)];
    if (stored.external) return false;
    for (std::int32_t v = from; v <= version; ++v) {
      const std::int32_t writer = stored.writers[index(v)];
      if (writer == kNone) return false;
      if (out.entries[index(writer)]) continue;
      const Entry& entry = entries_[index(writer)];
      if (entry.random || entry.facts->not_repeatable || entry.pruned) return false;
      out.entries[index(writer)] = true;
      out.seconds += entry.seconds;
      ++out.operators;
      for (const Reference& reference : entry.references) {
        if (available(reference)) {
          out.held[index(reference.storage)] = true;
        } else {
          open.emplace_back(reference.storage, reference.version);
        }
      }
    }
  }
  return true;
}

Closure Tape::closure(const StorageSet& drop) const {
  StorageSet split(stored_.size(), false);
  // A kept storage that is also needed at an older version is recovered apart; each round splits
  // one more at least.
  for (std::size_t round = 0; round <= stored_.size(); ++round) {
    Closure out;
    out.entries.assign(entries_.size(), false);
    out.held.assign(stored_.size(), false);
    std::vector<std::int32_t> needed_version(stored_.size(), kNone);
    if (!close(drop, split, out, needed_version)) break;
    bool changed = false;
    for (std::size_t k = 0; k < stored_.size(); ++k) {
      if (needed_version[k] == kNone || !out.held[k] || stored_[k].external) continue;
      split[k] = true;
      changed = true;
    }
    if (!changed) return out;
  }
  Closure none;
  none.feasible = false;
  none.entries.assign(entries_.size(), false);
  none.held.assign(stored_.size(), false);
  return none;
}

}  // namespace pudica::hooks
