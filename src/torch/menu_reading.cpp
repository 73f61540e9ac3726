// A class's menu, for calls that run other operators than those that it was found from.
#include <algorithm>

#include "torch/class_menu.h"
#include "torch/menu_rules.h"
#include "torch/menu_trial.h"
#include "torch/operator_work.h"

namespace pudica::hooks {
namespace {

class MenuReading {
 public:
  MenuReading(const Collection& call, const ClassMenu& menu)
      : call_(call),
        menu_(menu),
        recoverable_(call.tape.recoverable()),
        of_parameters_(made_of_parameters(call.tape)),
        all_(call.tape.stored().size(), true) {}

  std::shared_ptr<const ClassMenu> read() {
    if (call_.slot_storage.size() != menu_.slots) return nullptr;
    auto reading = std::make_shared<ClassMenu>(menu_);
    for (MenuStep& step : reading->steps) {
      std::erase_if(step.dropped, [this](std::uint32_t slot) { return is_from_outside(slot); });
      if (!is_alike(step) || !gives_back(call_, step.dropped, all_)) return nullptr;
    }
    reading->signature = call_.tape.signature();
    reading->sequence = call_.tape.sequence();
    keep_order(*reading);
    find_early(*reading);
    return reading;
  }

 private:
  [[nodiscard]] std::size_t storage_of(std::uint32_t slot) const {
    return static_cast<std::size_t>(call_.slot_storage[slot]);
  }

  // What the layer made of an input there, and is the input itself here: not the layer's own.
  [[nodiscard]] bool is_from_outside(std::uint32_t slot) const {
    return call_.slot_storage[slot] != Tape::kNone &&
           call_.tape.stored()[storage_of(slot)].external;
  }

  [[nodiscard]] bool may_go(std::uint32_t slot) const {
    if (call_.slot_storage[slot] == Tape::kNone) return false;
    const std::size_t storage = storage_of(slot);
    const Tape::Stored& stored = call_.tape.stored()[storage];
    return recoverable_[storage] && !of_parameters_[storage] && !stored.escapes &&
           call_.bytes_of[storage];
  }

  // What the step drops may go here, each by itself; what it packs is none of that.
  [[nodiscard]] bool is_alike(const MenuStep& step) const {
    std::vector<std::size_t> dropped;
    for (const std::uint32_t slot : step.dropped) {
      if (!may_go(slot)) return false;
      dropped.push_back(storage_of(slot));
    }
    if (dropped.empty() && step.packed.empty()) return false;
    if (runs_barred(dropped)) return false;
    std::ranges::sort(dropped);
    return std::ranges::adjacent_find(dropped) == dropped.end() &&
           std::ranges::none_of(step.packed, [this](std::uint32_t slot) { return may_go(slot); });
  }

  // What the rules do not let run again would.
  [[nodiscard]] bool runs_barred(const std::vector<std::size_t>& dropped) const {
    StorageSet drop(all_.size(), false);
    for (const std::size_t storage : dropped) drop[storage] = true;
    const Closure closure = call_.tape.closure(drop);
    for (std::size_t e = 0; e < closure.entries.size(); ++e) {
      const std::string& name = call_.tape.entries()[e].facts->name;
      const bool is_barred = std::ranges::any_of(
          menu_.keep_operators, [&name](const std::string& rule) { return is_named(rule, name); });
      if (closure.entries[e] && is_barred) return true;
    }
    return !closure.feasible;
  }

  // What does not come back here, alone or with those before it, is not revoked alone.
  void keep_order(ClassMenu& reading) const {
    std::vector<std::uint32_t> order;
    std::vector<double> prices;
    std::vector<std::uint32_t> sorted;
    for (std::size_t i = 0; i < menu_.order.size(); ++i) {
      std::vector<std::uint32_t> with = sorted;
      with.insert(std::ranges::upper_bound(with, menu_.order[i]), menu_.order[i]);
      if (!may_go(menu_.order[i]) || !gives_back(call_, with, all_)) continue;
      sorted = std::move(with);
      order.push_back(menu_.order[i]);
      prices.push_back(menu_.order_price_us[i]);
    }
    reading.order = std::move(order);
    reading.order_price_us = std::move(prices);
  }

  // Masks were not looked at as they were saved: they are packed when the layer ends.
  void find_early(ClassMenu& reading) const {
    reading.early.clear();
    for (const std::uint32_t slot : reading.order) {
      StorageSet there(all_.size(), false);
      for (std::uint32_t before = 0; before < slot; ++before) {
        if (call_.slot_storage[before] != Tape::kNone) there[storage_of(before)] = true;
      }
      if (gives_back(call_, {slot}, there)) reading.early.push_back({slot, call_.histories[slot]});
    }
  }

  const Collection& call_;
  const ClassMenu& menu_;
  const StorageSet recoverable_;
  const StorageSet of_parameters_;
  const StorageSet all_;
};

}  // namespace

std::shared_ptr<const ClassMenu> read_menu(const Collection& call, const ClassMenu& menu) {
  if (call.tape.incomplete()) return nullptr;
  return MenuReading(call, menu).read();
}

}  // namespace pudica::hooks
