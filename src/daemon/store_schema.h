// The store's tables: each version of the schema as the step that leads to it from the one before.
#pragma once

#include <cstdint>
#include <span>

namespace pudica::daemon {

// Marks the file as ours (PRAGMA application_id): "pudi".
inline constexpr std::int64_t kStoreApplicationId = 0x70756469;

// The i-th entry leads from version i to version i + 1. A new database goes through all of them.
// An entry, once released, never changes.
std::span<const char* const> store_migrations();

// Statements that fail where a table or a column of the newest version is missing.
std::span<const char* const> store_probes();

}  // namespace pudica::daemon
