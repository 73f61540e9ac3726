#include "torch/tape_operator.h"

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace pudica::hooks {
namespace {

// FNV-1a: the same in every build, as numbers of menus are saved.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

OperatorFacts read_facts(const c10::FunctionSchema& schema) {
  constexpr std::string_view kOwn = "aten::";
  OperatorFacts facts;
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
  // Batch norm writes its running statistics although its schema does not say so.
  facts.not_repeatable = !own || facts.name == "set_" || facts.name == "resize_" ||
                         facts.name == "resize_as_" ||
                         facts.name.find("batch_norm") != std::string::npos || schema.is_vararg() ||
                         schema.is_varret();
  facts.only_views = !facts.writes_any && !schema.returns().empty();
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() == nullptr) facts.only_views = false;
  }
  return facts;
}

}  // namespace

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  static thread_local std::unordered_map<const void*, const OperatorFacts*> seen;
  static std::mutex mutex;
  static std::unordered_map<const void*, std::unique_ptr<OperatorFacts>> all;
  const void* const key = &op.schema();
  const auto found = seen.find(key);
  if (found != seen.end()) return *found->second;
  const std::lock_guard lock(mutex);
  auto& facts = all[key];
  if (!facts) {
    facts = std::make_unique<OperatorFacts>(read_facts(op.schema()));
  }
  seen.emplace(key, facts.get());
  return *facts;
}

}  // namespace pudica::hooks
