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
