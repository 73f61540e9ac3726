#include "torch/menu_trial.h"

#include <exception>
#include <string>

#include <ATen/ATen.h>

#include "base/log.h"
#include "torch/new_memory.h"

namespace pudica::hooks {
namespace {

at::Tensor bytes_in(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options).set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())});
}

// What the forward left, and nothing else.
void begin_trial(const Collection& call, const StorageSet& there, const StorageSet& dropped) {
  auto& all = call.tape.stored();
  for (std::size_t k = 0; k < all.size(); ++k) {
    Tape::Stored& stored = all[k];
    if (stored.external) {
      stored.pinned = true;
      stored.live_version = stored.version;
      continue;
    }
    const bool saved = stored.slots > 0 && call.bytes_of[k] && there[k] && !dropped[k];
    stored.pinned = saved;
    stored.live = saved ? call.bytes_of[k] : c10::Storage();
    stored.live_version = saved ? stored.version : Tape::kNone;
  }
}

void end_trial(const Collection& call) {
  for (Tape::Stored& stored : call.tape.stored()) {
    stored.pinned = false;
    stored.set_aside = c10::Storage();
    if (stored.external) continue;
    stored.live = c10::Storage();
    stored.live_version = Tape::kNone;
  }
}

}  // namespace

bool gives_back(const Collection& call, const std::vector<std::uint32_t>& slots,
                const StorageSet& there) {
  StorageSet dropped(there.size(), false);
  for (const std::uint32_t slot : slots) {
    dropped[static_cast<std::size_t>(call.slot_storage[slot])] = true;
  }
  begin_trial(call, there, dropped);
  bool same = true;
  try {
    const PatternGuard pattern(MemoryPattern::kAgain);
    for (auto slot = slots.rbegin(); same && slot != slots.rend(); ++slot) {
      const std::int32_t storage = call.slot_storage[*slot];
      const auto k = static_cast<std::size_t>(storage);
      same = same_where_written(bytes_in(call.bytes_of[k]),
                                bytes_in(call.tape.recover(storage, dropped)));
      dropped[k] = false;
      call.tape.collect(dropped, /*pinned_too=*/false);
    }
  } catch (const std::exception& error) {
    same = false;
    log_info(std::string("a saved tensor is kept: it cannot be recovered: ") + error.what());
  }
  end_trial(call);
  return same;
}

}  // namespace pudica::hooks
