#include "torch/tape_operator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ATen/core/enum_tag.h>

namespace pudica::hooks {
namespace {

// FNV-1a: the same in every build, as numbers of menus are saved.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// What layers make their masks with. Others may hand on bytes that they are given.
bool makes_truth_values(std::string_view name) {
  constexpr std::array<std::string_view, 8> kNames{
      "native_dropout", "_to_copy", "eq", "ne", "lt", "le", "gt", "ge"};
  return std::ranges::find(kNames, name) != kNames.end();
}

void read_facts(const c10::OperatorHandle& op, OperatorFacts& facts) {
  constexpr std::string_view kOwn = "aten::";
  const c10::FunctionSchema& schema = op.schema();
  facts.arguments = schema.arguments().size();
  for (const c10::Argument& argument : schema.arguments()) {
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    facts.writes.push_back(writes);
    facts.writes_any = facts.writes_any || writes;
  }
  facts.name = schema.name();
  facts.hash = hash_of(facts.name + "." + schema.overload_name());
  const bool own = facts.name.starts_with(kOwn);
  if (own) facts.name = facts.name.substr(kOwn.size());
  facts.makes_empty = facts.name.starts_with("empty") || facts.name.starts_with("new_empty");
  facts.makes_truth_values = own && makes_truth_values(facts.name);
  facts.foreign = !own || schema.is_vararg() || schema.is_varret();
  // Batch norm writes its running statistics although its schema does not say so.
  facts.not_repeatable = facts.foreign || facts.name == "set_" || facts.name == "resize_" ||
                         facts.name == "resize_as_" ||
                         facts.name.find("batch_norm") != std::string::npos;
  facts.only_views = !facts.writes_any && !schema.returns().empty();
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() == nullptr) facts.only_views = false;
  }
  // One that autograd is not to know as such.
  facts.only_views = facts.only_views || (own && facts.name == "_unsafe_view");
  facts.may_draw = facts.foreign || op.hasTag(at::Tag::nondeterministic_seeded);
}

// Facts by the address of the schema. Leaked: operators may run until the process ends.
struct Known {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<const OperatorFacts>> facts;
  std::vector<std::unique_ptr<const OperatorFacts>> outdated;  // tapes may still refer to them
  std::atomic<std::uint64_t> removals{0};
};

Known& known() {
  static auto* const instance = new Known;
  return *instance;
}

// An operator that is defined later may have the address of one that is gone.
class RemovalListener final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    Known& all = known();
    const std::lock_guard lock(all.mutex);
    const auto found = all.facts.find(&op.schema());
    if (found == all.facts.end()) return;
    all.outdated.push_back(std::move(found->second));
    all.facts.erase(found);
    all.removals.fetch_add(1);
  }
};

void watch_removals() {
  static const auto* const registration =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(
          std::make_unique<RemovalListener>()));  // leaked, as what it serves
  (void)registration;
}

}  // namespace

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const void*, const OperatorFacts*> seen;
  static thread_local std::uint64_t seen_removals = 0;
  Known& all = known();
  const std::uint64_t removals = all.removals.load(std::memory_order_acquire);
  if (removals != seen_removals) {
    seen.clear();
    seen_removals = removals;
  }
  const void* const key = &op.schema();
  const auto found = seen.find(key);
  if (found != seen.end()) return *found->second;
  watch_removals();  // takes the dispatcher's lock, under which the listener takes ours
  const std::lock_guard lock(all.mutex);
  auto& facts = all.facts[key];
  if (!facts) {
    auto fresh = std::make_unique<OperatorFacts>();
    read_facts(op, *fresh);
    facts = std::move(fresh);
  }
  seen.emplace(key, facts.get());
  return *facts;
}

}  // namespace pudica::hooks
