// Whatever is in the file, the store opens: what cannot be read is moved aside.
#include <random>

#include "daemon/store_support.h"

namespace pudica::daemon::testing {
namespace {

// A store with something in every table, closed, as bytes.
std::string written_file(const TemporaryFolder& folder) {
  const std::string path = folder.file("template.db");
  {
    const auto store = open_store(path);
    for (int i = 0; i < 8; ++i) {
      const std::string id = "r" + std::to_string(i);
      EXPECT_TRUE(store->save_run(run_at(id, i)));
      EXPECT_TRUE(store->add_steps(id, steps_from(0, 20)));
      EXPECT_TRUE(store->save_plans(id, "[]"));
      EXPECT_TRUE(store->save_model({"f" + id, std::string(2000, 's'), 1, 1, 1, time_at(i)}));
    }
  }
  return read_file(path);
}

// Uses every table; errors are fine as long as a write works again in the end.
void use(Store& store) {
  (void)store.runs(100);
  (void)store.run("r3");
  (void)store.plans("r3");
  (void)store.steps("r3", 100);
  (void)store.models();
  (void)store.prune();
  for (int i = 0; i < 3; ++i) {
    const auto saved = store.save_run(run_at("after", 100));
    if (saved) break;
    EXPECT_EQ(saved.error().code, ErrorCode::kCorrupt) << saved.error().message;
  }
  EXPECT_TRUE(store.run("after")) << store.run("after").error().message;
  EXPECT_TRUE(store.add_steps("after", steps_from(0, 3)));
}

// Opens a store on these bytes. Returns whether they were kept.
bool open_and_use(const TemporaryFolder& folder, const std::string& bytes) {
  const std::string path = folder.file("store.db");
  for (const std::string& name : folder.names_with("store.db")) {
    std::filesystem::remove(folder.file(name));
  }
  write_file(path, bytes);
  const auto store = open_store(path);
  if (store == nullptr) return false;
  use(*store);
  return folder.names_with("corrupt").empty();
}

TEST(StoreDamage, MovesAsideWhatIsNoDatabase) {
  const TemporaryFolder folder;
  for (const std::string& bytes :
       {std::string("not a database, but long enough to have a header of one hundred bytes, as a "
                    "database has: moved aside"),
        std::string(5000, '\0'), std::string("SQLite format 3\0", 16)}) {
    EXPECT_FALSE(open_and_use(folder, bytes));
    const auto moved = folder.names_with("store.db.corrupt-");
    ASSERT_FALSE(moved.empty());
    EXPECT_EQ(read_file(folder.file(moved.front())), bytes);
  }
}

TEST(StoreDamage, AnEmptyFileIsANewDatabase) {
  const TemporaryFolder folder;
  EXPECT_TRUE(open_and_use(folder, ""));
}

TEST(StoreDamage, OpensWithEvery97thByteFlipped) {
  const TemporaryFolder folder;
  const std::string good = written_file(folder);
  ASSERT_GT(good.size(), 20000U);
  EXPECT_TRUE(open_and_use(folder, good));
  for (std::size_t first = 0; first < 97; first += 8) {
    std::string bytes = good;
    for (std::size_t i = first; i < bytes.size(); i += 97) bytes[i] = static_cast<char>(~bytes[i]);
    EXPECT_FALSE(open_and_use(folder, bytes)) << first;
  }
}

TEST(StoreDamage, OpensWithOneByteFlipped) {
  const TemporaryFolder folder;
  const std::string good = written_file(folder);
  int kept = 0;
  int moved = 0;
  for (std::size_t i = 0; i < 100; i += 3) {  // the header
    std::string bytes = good;
    bytes[i] = static_cast<char>(~bytes[i]);
    ++(open_and_use(folder, bytes) ? kept : moved);
  }
  EXPECT_GT(moved, 5);  // the magic string alone
  EXPECT_GT(kept, 5);   // unused bytes
  for (std::size_t i = 100; i < good.size(); i += 1499) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(~bytes[i]);
    open_and_use(folder, bytes);
  }
}

TEST(StoreDamage, OpensWhenCutOffOrFilledWithRandomBytes) {
  const TemporaryFolder folder;
  const std::string good = written_file(folder);
  std::mt19937_64 random(11);
  for (int i = 0; i < 12; ++i) open_and_use(folder, good.substr(0, random() % good.size()));
  for (int i = 0; i < 24; ++i) {
    std::string bytes = good;
    const std::size_t begin = random() % bytes.size();
    const std::size_t end = std::min(bytes.size(), begin + random() % 9000);
    for (std::size_t k = begin; k < end; ++k) bytes[k] = static_cast<char>(random());
    open_and_use(folder, bytes);
  }
}

TEST(StoreDamage, DamageWhileOpenIsHealedAtTheNextOperation) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store.db");
  write_file(path, written_file(folder));
  const auto store = open_store(path);
  ASSERT_NE(store, nullptr);
  write_file(path, std::string(std::filesystem::file_size(path), '\x5a'));
  std::string state;
  for (int i = 0; i < 5; ++i) {
    const auto saved = store->save_run(run_at("r" + std::to_string(i), i));
    if (saved && store->runs(9) && store->models()) break;
  }
  EXPECT_TRUE(store->save_run(run_at("after", 1)));
  EXPECT_EQ(store->run("after")->id, "after");
}

TEST(StoreDamage, KeepsTheEvidenceOfTheLastFewOnly) {
  const TemporaryFolder folder;
  const std::string path = folder.file("store.db");
  for (int i = 0; i < 8; ++i) {
    write_file(path, "damaged " + std::to_string(i));
    ASSERT_NE(open_store(path), nullptr);
  }
  const std::size_t kept = folder.names_with("corrupt").size();
  EXPECT_GE(kept, 1U);
  EXPECT_LE(kept, 4U);
}

TEST(StoreDamage, SaysWhyWhenTheFileIsLocked) {
  const TemporaryFolder folder;
  StoreOptions options;
  options.path = folder.file("store.db");
  options.busy_timeout_ms = 1;
  const auto first = open_store(options);
  const auto held = first->transaction([&](Store& inner) {
    EXPECT_TRUE(inner.save_run(run_at("r1", 1)));
    const auto second = Store::open(options);
    EXPECT_FALSE(second);
    EXPECT_TRUE(!second && second.error().code == ErrorCode::kUnavailable);
    return Result<void>();
  });
  EXPECT_TRUE(held);
  EXPECT_TRUE(folder.names_with("corrupt").empty());
}

}  // namespace
}  // namespace pudica::daemon::testing
