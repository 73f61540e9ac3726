#include "torch/class_menu.h"

#include <algorithm>

#include "pudica/bytes.h"

namespace pudica::hooks {

std::string to_string(const MenuStep& step) {
  std::string text = "frees " + format_bytes(Bytes(step.freed_bytes)) +
                     " at the shape first seen: drops " + std::to_string(step.dropped.size()) +
                     " saved tensors";
  if (!step.packed.empty()) {
    text += ", holds " + std::to_string(step.packed.size()) + " masks as bits";
  }
  text += "; runs again:";
  std::string last;
  std::size_t repeats = 0;
  const auto flush = [&] {
    if (last.empty()) return;
    text += ' ' + last + (repeats > 1 ? " x" + std::to_string(repeats) : "") + ',';
  };
  std::vector<std::string> sorted = step.operators;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) {
    if (name != last) flush();
    repeats = name == last ? repeats + 1 : 1;
    last = name;
  }
  flush();
  if (step.operators.empty()) return text + " nothing";
  text.pop_back();
  return text;
}

namespace {

// Each candidate by itself, all others being there.
std::shared_ptr<const ClassMenu> with_nodes(const ClassMenu& menu, const Collection& call) {
  const auto storage_of = [&](std::uint32_t slot) {
    return static_cast<std::size_t>(call.slot_storage[slot]);
  };
  std::vector<EvictionNode> nodes;
  for (const std::uint32_t slot : menu.order) {
    StorageSet drop(call.tape.stored().size(), false);
    drop[storage_of(slot)] = true;
    const Closure closure = call.tape.closure(drop);
    EvictionNode& node = nodes.emplace_back();
    node.seconds = closure.seconds;
    for (std::uint32_t other = 0; other < menu.order.size(); ++other) {
      if (closure.held[storage_of(menu.order[other])]) node.inputs.push_back(other);
    }
  }
  auto out = std::make_shared<ClassMenu>(menu);
  out->nodes = std::make_shared<const std::vector<EvictionNode>>(std::move(nodes));
  return out;
}

}  // namespace

bool ClassTapes::wants_collection() const {
  const std::lock_guard lock(mutex_);
  return collections_ < kCollections && menu_ == nullptr;
}

void ClassTapes::collected(const Collection& call) {
  {
    const std::lock_guard lock(mutex_);
    if (++collections_ < kCollections) return;
    searching_ = true;
  }
  auto menu = find_menu(call, kMostSteps, rules_);
  if (menu && evicts_) menu = with_nodes(*menu, call);
  const std::lock_guard lock(mutex_);
  menu_ = std::move(menu);
  searching_ = false;
}

std::shared_ptr<const ClassMenu> ClassTapes::menu() const {
  const std::lock_guard lock(mutex_);
  return menu_;
}

bool ClassTapes::has_none() const {
  const std::lock_guard lock(mutex_);
  return collections_ >= kCollections && !searching_ && menu_ == nullptr;
}

void ClassTapes::met_stranger() {
  const std::lock_guard lock(mutex_);
  if (++strangers_ >= kMostStrangers) menu_ = nullptr;
}

}  // namespace pudica::hooks
