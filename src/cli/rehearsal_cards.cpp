#include "cli/rehearsal_cards.h"

#include <algorithm>
#include <cstddef>

#include "config/config.h"

namespace pudica::cli {
namespace {

constexpr double kAutoShare = 0.9;  // of what a process could get, as attach() takes it

struct Room {
  Bytes memory;
  Bytes usable;  // by a process
  Bytes budget;
};

Room room_on(const emulated::Card& card, Bytes memory, const std::string& budget) {
  const Bytes context{static_cast<std::int64_t>(card.context_bytes)};
  return {memory, memory - context, budget_bytes(budget, memory, context)};
}

Room room_on(const emulated::Card& card) {
  return room_on(card, Bytes{static_cast<std::int64_t>(card.memory_bytes)}, "auto");
}

Json to_json(const Room& room, bool fits) {
  return {{"usable_bytes", room.usable.count()},
          {"budget_bytes", room.budget.count()},
          {"fits_as_is", fits}};
}

// By dimension, of the room with this number.
Json sizes_in(const Json* handle, std::size_t room) {
  Json out = Json::object();
  const Json* const sizes = handle ? find(*handle, "largest") : nullptr;
  if (sizes == nullptr || !sizes->is_object()) return out;
  for (const auto& [name, found] : sizes->items()) {
    const Json& rooms = list(found, "rooms");
    if (room < rooms.size()) out[name] = rooms[room];
  }
  return out;
}

// From what the longest batch needs.
Json on_card(const emulated::Card& card, const Json& whole, const Json* handle) {
  const Room room = room_on(card);
  Json out{{"card", card.name},
           {"memory_bytes", room.memory.count()},
           {"budget_bytes", room.budget.count()},
           {"fits_as_is", nullptr},
           {"fits_with_plan", nullptr},
           {"extra_seconds", nullptr}};
  if (peak_of(whole, "reserved") <= room.usable) out["fits_as_is"] = true;
  if (peak_of(whole, "allocated") > room.usable) out["fits_as_is"] = false;
  if (handle == nullptr) return out;
  const std::int64_t budget = room.budget.count();
  const auto floor = integer(*handle, "shapes.longest.floor_peak_bytes");
  if (floor) out["fits_with_plan"] = *floor <= budget;
  for (const Json& point : list(*handle, "shapes.longest.frontier")) {
    const auto seconds = number(point, "extra_seconds");
    if (!seconds || integer(point, "peak_bytes").value_or(budget + 1) > budget) continue;
    if (out["extra_seconds"].is_null() || *seconds < out["extra_seconds"]) {
      out["extra_seconds"] = *seconds;
    }
  }
  return out;
}

}  // namespace

Bytes budget_bytes(const std::string& budget, Bytes memory, Bytes context) {
  const auto read = parse_budget(budget.empty() ? "auto" : budget);
  if (read && read->kind == BudgetSetting::Kind::kBytes) return read->bytes;
  const auto usable = static_cast<double>((memory - context).count());
  return Bytes{std::max<std::int64_t>(1, static_cast<std::int64_t>(kAutoShare * usable))};
}

Json rooms_of(const Rehearsal& rehearsal, const Json& whole, bool fits) {
  Json rooms = Json::array();
  const Room own = room_on(*rehearsal.card, rehearsal.memory, rehearsal.budget);
  rooms.push_back(to_json(own, fits));
  for (const emulated::Card& card : emulated::cards()) {
    const Room room = room_on(card);
    rooms.push_back(to_json(room, fits && room.usable >= own.usable));
  }
  return {{"reserved_bytes", peak_of(whole, "reserved").count()}, {"rooms", std::move(rooms)}};
}

Json cards_of(const Json& whole, const Json* handle) {
  Json out = Json::array();
  std::size_t room = 0;  // the device's own is the first
  for (const emulated::Card& card : emulated::cards()) {
    Json one = on_card(card, whole, handle);
    one["largest"] = sizes_in(handle, ++room);
    out.push_back(std::move(one));
  }
  return out;
}

Json largest_sizes(const Json* handle) {
  Json out = sizes_in(handle, 0);
  for (auto& [name, sizes] : out.items()) {
    const Json& searched = (*handle)["largest"][name];
    for (const char* const part : {"seen", "searched_up_to"}) sizes[part] = searched[part];
  }
  return out;
}

}  // namespace pudica::cli
