// Which sets of saved tensors a class may drop: found from one collecting call.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include <ATen/ATen.h>

#include "base/log.h"
#include "torch/class_menu.h"
#include "torch/menu_hull.h"
#include "torch/menu_trial.h"
#include "torch/operator_work.h"
#include "torch/work_clock.h"

namespace pudica::hooks {
namespace {

constexpr std::size_t kMostExhaustive = 10;              // candidates: all their subsets are tried
constexpr std::size_t kMostCandidates = 48;              // the largest ones
constexpr double kLeastShare = 0.01;                     // of the layer's saved bytes
constexpr std::uint64_t kRules = 0x94d049bb133111ebULL;  // changes with what a mode's peaks mean

struct Candidate {
  std::uint32_t slot = 0;
  std::size_t storage = 0;
  std::int64_t bytes = 0;
};

class MenuFinder {
 public:
  MenuFinder(const Collection& call, const MenuRules& rules)
      : call_(call),
        rules_(rules),
        tape_(call.tape),
        of_parameters_(made_of_parameters(call.tape)) {
    for (const Tape::Entry& entry : tape_.entries()) {
      barred_.push_back(is_any_of(rules.keep_operators, entry));
    }
    for (std::size_t slot = 0; slot < call.slot_storage.size(); ++slot) {
      const std::int32_t storage = call.slot_storage[slot];
      if (storage == Tape::kNone || storage_slot(storage) != nullptr) continue;
      first_slot_.emplace_back(storage, static_cast<std::uint32_t>(slot));
      const Tape::Stored& stored = tape_.stored()[static_cast<std::size_t>(storage)];
      if (is_activation(static_cast<std::size_t>(storage))) saved_bytes_ += stored.bytes;
    }
  }

  std::shared_ptr<const ClassMenu> find(std::size_t most_steps) {
    const StorageSet recoverable = tape_.recoverable();
    choose_candidates(recoverable);
    choose_packed(recoverable);
    measure_work();
    std::vector<MenuPoint> hull = lower_hull(points());
    MenuPoint least = always_dropped();
    const bool is_first = hull.empty() || hull.front().freed > least.freed;
    if (!packed_.empty() && is_first) hull.insert(hull.begin(), std::move(least));
    thin(hull, most_steps);
    auto menu = std::make_shared<ClassMenu>();
    menu->signature = tape_.signature();
    menu->sequence = tape_.sequence();
    menu->slots = call_.slot_storage.size();
    for (const MenuPoint& point : hull) menu->steps.push_back(step_of(point));
    add_order(*menu);
    drop_what_differs(*menu);
    if (menu->steps.empty()) return nullptr;
    add_early(*menu);
    menu->keep_operators = rules_.keep_operators;
    menu->id = id_of(*menu);
    return menu;
  }

 private:
  [[nodiscard]] const std::uint32_t* storage_slot(std::int32_t storage) const {
    for (const auto& [known, slot] : first_slot_) {
      if (known == storage) return &slot;
    }
    return nullptr;
  }

  // Neither from outside nor made of parameters alone: casts of weights do not grow with the shape,
  // and stay.
  [[nodiscard]] bool is_activation(std::size_t storage) const {
    return !tape_.stored()[storage].external && !of_parameters_[storage];
  }

  static bool is_any_of(const std::vector<std::string>& rules, const Tape::Entry& entry) {
    return std::ranges::any_of(
        rules, [&entry](const std::string& rule) { return is_named(rule, entry.facts->name); });
  }

  // The last operator that wrote it.
  [[nodiscard]] bool is_to_be_dropped(std::size_t storage) const {
    const auto& writers = tape_.stored()[storage].writers;
    if (writers.empty()) return false;
    const Tape::Entry& entry = tape_.entries()[static_cast<std::size_t>(writers.back())];
    return is_any_of(rules_.recompute_operators, entry);
  }

  [[nodiscard]] bool is_large(std::int64_t bytes) const {
    return static_cast<double>(bytes) >= kLeastShare * static_cast<double>(saved_bytes_);
  }

  // Work by operator, and the units: of what recovering all candidates may take.
  void measure_work() {
    StorageSet all(tape_.stored().size(), false);
    for (const Candidate& one : candidates_) {
      all[one.storage] = true;
      byte_unit_ = std::gcd(byte_unit_, one.bytes);
    }
    const Closure closure = tape_.closure(all);
    for (std::size_t e = 0; e < tape_.entries().size(); ++e) {
      const Tape::Entry& entry = tape_.entries()[e];
      std::int64_t work = work_of(entry, tape_.stored());
      for (const Tape::Output& output : entry.outputs) {
        if (of_parameters_[static_cast<std::size_t>(output.storage)]) work = 0;
      }
      work_.push_back(work);
      total_work_ += static_cast<double>(work);
      if (closure.entries[e]) work_unit_ = std::gcd(work_unit_, work);
    }
    work_unit_ = std::max<std::int64_t>(1, work_unit_);
    byte_unit_ = std::max<std::int64_t>(1, byte_unit_);
  }

  // Large saved storages that the operators give back to the bit.
  void choose_candidates(const StorageSet& recoverable) {
    for (const auto& [number, slot] : first_slot_) {
      const auto storage = static_cast<std::size_t>(number);
      const Tape::Stored& stored = tape_.stored()[storage];
      if (!is_activation(storage) || !is_large(stored.bytes)) continue;
      if (recoverable[storage] && !stored.escapes) {
        candidates_.push_back({slot, storage, stored.bytes});
      }
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes > b.bytes; });
    if (candidates_.size() > kMostCandidates) candidates_.resize(kMostCandidates);
    std::erase_if(candidates_, [this](const Candidate& one) { return !reproduces(one); });
  }

  // `early`: while only those are there that were saved before it.
  bool reproduces(const Candidate& one, bool early = false) {
    StorageSet there(tape_.stored().size(), !early);
    for (const auto& [number, slot] : first_slot_) {
      if (slot < one.slot) there[static_cast<std::size_t>(number)] = true;
    }
    return gives_back(call_, {one.slot}, there);
  }

  // Each candidate is recovered while all others are there: together they may still not be.
  void drop_what_differs(ClassMenu& menu) {
    const StorageSet all(tape_.stored().size(), true);
    std::erase_if(menu.steps,
                  [&](const MenuStep& step) { return !gives_back(call_, step.dropped, all); });
    const auto order_differs = [&] {
      std::vector<std::uint32_t> slots = menu.order;
      std::ranges::sort(slots);
      return !gives_back(call_, slots, all);
    };
    while (!menu.order.empty() && order_differs()) {
      menu.order.pop_back();
      menu.order_price_us.pop_back();
    }
  }

  void add_early(ClassMenu& menu) {
    for (const Candidate& one : candidates_) {
      if (reproduces(one, /*early=*/true)) early_.push_back(one.slot);
    }
    for (const std::uint32_t slot : early_) {
      menu.early.push_back({slot, call_.histories[slot]});
    }
  }

  // What cannot be recovered and has two values: dropout's noise.
  void choose_packed(const StorageSet& recoverable) {
    for (const auto& [number, slot] : first_slot_) {
      const auto storage = static_cast<std::size_t>(number);
      const Tape::Stored& stored = tape_.stored()[storage];
      if (recoverable[storage] || stored.external || stored.escapes || stored.saved_early) continue;
      if (!is_large(stored.bytes) || !call_.bytes_of[storage]) continue;
      const c10::Device device = call_.bytes_of[storage].device();
      synchronize(device);
      const HostInstant begin = tape_.clock().now();
      const auto bits = encode_bits(call_.bytes_of[storage], stored.item_bytes);
      if (!bits) continue;
      decode_bits(*bits);
      synchronize(device);
      const HostInstant end = tape_.clock().now();
      if (stored.contents() == Contents::kAny && !has_both_values(*bits)) continue;
      packed_seconds_ += device.is_cpu() ? end.seconds_since(begin) : end.passed_since(begin);
      packed_.push_back(slot);
      const auto& then = stored.bits_when_saved;
      const bool same = then && then->value == bits->value && at::equal(then->packed, bits->packed);
      if (same) early_.push_back(slot);
      packing_work_ += work_of_packing(stored.bytes);
      packed_bytes_ += stored.bytes - static_cast<std::int64_t>(bits->packed.nbytes());
    }
  }

  // `bound`: by the rules.
  MenuPoint evaluate(std::vector<std::size_t> chosen, bool bound, bool& feasible) const {
    StorageSet drop(tape_.stored().size(), false);
    MenuPoint point;
    for (const std::size_t i : chosen) {
      drop[candidates_[i].storage] = true;
      point.freed += candidates_[i].bytes / byte_unit_;
    }
    const Closure closure = tape_.closure(drop);
    feasible = closure.feasible;
    for (std::size_t e = 0; e < closure.entries.size(); ++e) {
      if (!closure.entries[e]) continue;
      point.work += work_[e] / work_unit_;
      feasible = feasible && !(bound && barred_[e]);
    }
    point.chosen = std::move(chosen);
    return point;
  }

  std::vector<MenuPoint> points() const {
    std::vector<MenuPoint> out;
    bool feasible = false;
    const MenuPoint always = always_dropped();
    if (candidates_.size() <= kMostExhaustive) {
      std::uint32_t required = 0;
      for (const std::size_t i : always.chosen) required |= 1U << i;
      for (std::uint32_t set = 1; set < (1U << candidates_.size()); ++set) {
        if ((set & required) != required) continue;
        std::vector<std::size_t> chosen;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
          if ((set >> i & 1U) != 0) chosen.push_back(i);
        }
        MenuPoint point = evaluate(std::move(chosen), /*bound=*/true, feasible);
        if (feasible) out.push_back(std::move(point));
      }
      return out;
    }
    MenuPoint now = always;
    if (!now.chosen.empty()) out.push_back(now);
    while (const auto next = cheapest_next(now, /*bound=*/true)) {
      now = next->point;
      out.push_back(now);
    }
    return out;
  }

  // What the rules want dropped, as far as it can be recovered within them.
  MenuPoint always_dropped() const {
    MenuPoint now;
    bool feasible = false;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!is_to_be_dropped(candidates_[i].storage)) continue;
      std::vector<std::size_t> chosen = now.chosen;
      chosen.push_back(i);
      MenuPoint point = evaluate(std::move(chosen), /*bound=*/true, feasible);
      if (feasible) now = std::move(point);
    }
    return now;
  }

  struct Next {
    MenuPoint point;
    std::size_t candidate = 0;
  };

  // The candidate with the least further work per byte, added.
  std::optional<Next> cheapest_next(const MenuPoint& now, bool bound) const {
    double best_price = std::numeric_limits<double>::infinity();
    std::optional<Next> best;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (std::ranges::find(now.chosen, i) != now.chosen.end()) continue;
      std::vector<std::size_t> chosen = now.chosen;
      chosen.push_back(i);
      bool feasible = false;
      MenuPoint point = evaluate(std::move(chosen), bound, feasible);
      const double price = static_cast<double>(std::max<std::int64_t>(0, point.work - now.work)) /
                           static_cast<double>(point.freed - now.freed);
      if (!feasible || price >= best_price) continue;
      best_price = price;
      best = Next{std::move(point), i};
    }
    return best;
  }

  MenuStep step_of(const MenuPoint& point) const {
    MenuStep step;
    StorageSet drop(tape_.stored().size(), false);
    for (const std::size_t i : point.chosen) {
      step.dropped.push_back(candidates_[i].slot);
      drop[candidates_[i].storage] = true;
    }
    std::sort(step.dropped.begin(), step.dropped.end());
    step.packed = packed_;
    step.freed_bytes = point.freed * byte_unit_ + packed_bytes_;
    const Closure closure = tape_.closure(drop);
    step.seconds = closure.seconds + packed_seconds_;
    const double again = static_cast<double>(point.work) * static_cast<double>(work_unit_) +
                         static_cast<double>(packing_work_);
    if (total_work_ > 0) step.work_share = std::min(1.0, again / total_work_);
    for (std::size_t e = 0; e < closure.entries.size(); ++e) {
      if (closure.entries[e]) step.operators.push_back(tape_.entries()[e].facts->name);
    }
    return step;
  }

  // For revocation: candidates in the order of the work per byte that each adds, priced by the
  // times of this call.
  void add_order(ClassMenu& menu) const {
    MenuPoint now;
    double seconds = 0;
    while (const auto next = cheapest_next(now, /*bound=*/false)) {
      StorageSet drop(tape_.stored().size(), false);
      for (const std::size_t i : next->point.chosen) drop[candidates_[i].storage] = true;
      const double with = std::max(seconds, tape_.closure(drop).seconds);
      const Candidate& added = candidates_[next->candidate];
      menu.order.push_back(added.slot);
      menu.order_price_us.push_back((with - seconds) * 1e6 / static_cast<double>(added.bytes));
      seconds = with;
      now = next->point;
    }
  }

  static std::uint64_t id_of(const ClassMenu& menu) {
    // What was measured under other rules of when bytes go is not of this menu.
    std::uint64_t id = menu.signature ^ kRules;
    const auto mix = [&id](std::uint64_t value) { id = (id ^ value) * 0x100000001b3ULL; };
    for (const MenuStep& step : menu.steps) {
      mix(step.dropped.size());
      for (const std::uint32_t slot : step.dropped) mix(slot);
      mix(step.packed.size());
      for (const std::uint32_t slot : step.packed) mix(slot);
    }
    return std::max(id, ClassMenu::kNone + 1);
  }

  const Collection& call_;
  const MenuRules& rules_;
  Tape& tape_;
  StorageSet of_parameters_;
  std::vector<std::pair<std::int32_t, std::uint32_t>> first_slot_;
  std::int64_t saved_bytes_ = 0;
  std::vector<Candidate> candidates_;
  std::vector<std::int64_t> work_;  // by operator
  std::vector<bool> barred_;        // by operator: the rules say that it is not to run again
  double total_work_ = 0;
  std::int64_t work_unit_ = 0;
  std::int64_t byte_unit_ = 0;
  std::vector<std::uint32_t> packed_;
  std::vector<std::uint32_t> early_;
  std::int64_t packed_bytes_ = 0;
  std::int64_t packing_work_ = 0;
  double packed_seconds_ = 0;
};

}  // namespace

std::shared_ptr<const ClassMenu> find_menu(const Collection& call, std::size_t most_steps,
                                           const MenuRules& rules) {
  if (call.tape.incomplete()) return nullptr;
  return MenuFinder(call, rules).find(most_steps);
}

}  // namespace pudica::hooks
