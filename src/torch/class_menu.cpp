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

// Each candidate by itself, all others being there. The seconds are those of `timed`, where set.
std::shared_ptr<const ClassMenu> with_nodes(const ClassMenu& menu, const Collection& call,
                                            const ClassMenu* timed = nullptr) {
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
    if (timed != nullptr && timed->nodes) {
      const auto known = std::ranges::find(timed->order, slot) - timed->order.begin();
      node.seconds = timed->nodes->at(static_cast<std::size_t>(known)).seconds;
    }
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
  return collections_ < kCollections && readings_.empty();
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
  if (menu) readings_.push_back({std::move(menu), {}});
  searching_ = false;
}

std::shared_ptr<const ClassMenu> ClassTapes::menu() const {
  const std::lock_guard lock(mutex_);
  return readings_.empty() ? nullptr : readings_[latest_].menu;
}

std::shared_ptr<const ClassMenu> ClassTapes::menu_at(const ShapeKey& shape, std::size_t place,
                                                     bool strayed) const {
  const std::lock_guard lock(mutex_);
  if (readings_.empty()) return nullptr;
  const bool by_place = !strayed && place < latest_at_.size();
  const Reading& latest = readings_[by_place ? latest_at_[place] : latest_];
  for (const Reading& other : readings_) {
    if (other.met.claims(shape, latest.met)) return other.menu;
  }
  return latest.menu;
}

std::shared_ptr<const ClassMenu> ClassTapes::menu_of(std::uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(readings_, signature, signature_of);
  return found == readings_.end() ? nullptr : found->menu;
}

bool ClassTapes::may_be_read(std::uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  if (readings_.empty() || readings_.size() >= kMostReadings) return false;
  return unreadable_.size() < kMostUnreadable &&
         std::ranges::find(unreadable_, signature) == unreadable_.end() &&
         std::ranges::find(readings_, signature, signature_of) == readings_.end();
}

std::shared_ptr<const ClassMenu> ClassTapes::read(const Collection& call) {
  std::shared_ptr<const ClassMenu> found;
  {
    const std::lock_guard lock(mutex_);
    if (readings_.empty()) return nullptr;
    found = readings_.front().menu;
  }
  auto reading = read_menu(call, *found);
  if (reading && evicts_) reading = with_nodes(*reading, call, found.get());
  const std::lock_guard lock(mutex_);
  const bool same = !readings_.empty() && readings_.front().menu == found;
  if (!same) return nullptr;  // withdrawn
  if (reading) {
    readings_.push_back({reading, {}});
    // Where there was no room to read it, they were strangers.
    suspects_.clear();
    if (told_) told_->not_at.clear();
  } else {
    unreadable_.push_back(call.tape.signature());
  }
  return reading;
}

std::optional<StepStructure::Menu> ClassTapes::told(const ShapeKey& shape) {
  const std::lock_guard lock(mutex_);
  if (told_) return told_;
  if (readings_.empty()) {
    const bool none = collections_ >= kCollections && !searching_;
    if (!none) return std::nullopt;
    StepStructure::Menu menu;
    menu.id = ClassMenu::kNone;
    return menu;
  }
  StepStructure::Menu& menu = told_.emplace();
  menu.id = readings_.front().menu->id;
  menu.shape = shape;
  for (const MenuStep& step : readings_.front().menu->steps) {
    menu.steps.push_back(to_string(step));
    menu.promises.push_back({step.freed_bytes, step.work_share});
  }
  return told_;
}

void ClassTapes::met_its_like(const ShapeKey& shape, std::size_t place, const ClassMenu& reading) {
  const std::lock_guard lock(mutex_);
  const auto ran = std::ranges::find(readings_, reading.signature, signature_of);
  if (ran != readings_.end()) {
    ran->met.add(shape);
    latest_ = static_cast<std::size_t>(ran - readings_.begin());
    if (place >= latest_at_.size()) latest_at_.resize(place + 1, latest_);
    latest_at_[place] = latest_;
  }
  strange_steps_ = 0;
  std::erase(suspects_, shape);
}

void ClassTapes::met_strangers(const ShapeKey& shape) {
  const std::lock_guard lock(mutex_);
  if (!told_) return;
  const auto note = [&shape](std::vector<ShapeKey>& shapes) {
    if (shapes.size() >= kMostStrangeShapes) shapes.erase(shapes.begin());
    shapes.push_back(shape);
  };
  const auto has = [&shape](const std::vector<ShapeKey>& shapes) {
    return std::ranges::find(shapes, shape) != shapes.end();
  };
  if (has(told_->not_at)) {
    if (++strange_steps_ < kMostStrangeSteps) return;
    readings_.clear();
    latest_ = 0;
    latest_at_.clear();
    told_.reset();
  } else if (has(suspects_)) {
    std::erase(suspects_, shape);
    note(told_->not_at);
  } else {
    note(suspects_);
  }
}

}  // namespace pudica::hooks
