#include "daemon/store_writer.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

namespace pudica::daemon {
namespace {

constexpr std::chrono::seconds kStopWithin{1};

// What a batch came to.
struct Outcome {
  std::int64_t failed = 0;
  std::string first_failure;
};

}  // namespace

StoreWriter::StoreWriter(Store& store, StoreWriterOptions options)
    : store_(store),
      options_(options),
      batch_bytes_(static_cast<std::size_t>(store.transaction_bytes())),
      pruned_at_(Clock::now()),
      thread_([this] { work(); }) {}

StoreWriter::~StoreWriter() { stop(); }

bool StoreWriter::post(Task task, std::size_t bytes) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    const bool room =
        queue_.size() < options_.capacity && queued_bytes_ + bytes <= options_.capacity_bytes;
    if (stopping_ || !room) {
      ++stats_.dropped;
      return false;
    }
    queue_.push_back({std::move(task), bytes});
    queued_bytes_ += bytes;
    ++posted_;
    if (queue_.size() == 1 || queue_.size() >= options_.batch) changed_.notify_all();
    return true;
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    ++stats_.dropped;
    return false;
  }
}

bool StoreWriter::flush(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = posted_;
  wanted_ = std::max(wanted_, wanted);
  changed_.notify_all();
  return changed_.wait_for(lock, timeout, [this, wanted] { return done_ >= wanted; });
}

void StoreWriter::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) deadline_ = Clock::now() + kStopWithin;
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

StoreWriterStats StoreWriter::stats() const {
  const std::lock_guard lock(mutex_);
  StoreWriterStats out = stats_;
  out.queued = queue_.size();
  return out;
}

void StoreWriter::work() noexcept {
  for (;;) {
    try {
      const std::vector<Entry> entries = take();
      if (entries.empty()) return;
      write(entries);
      prune_when_due();
    } catch (const std::exception& error) {  // no memory: what was taken is lost
      log_warn(std::string("store writer: ") + error.what());
    }
  }
}

std::vector<StoreWriter::Entry> StoreWriter::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  changed_.wait_for(lock, options_.interval, [this] {
    return stopping_ || queue_.size() >= options_.batch || queued_bytes_ > batch_bytes_ ||
           wanted_ > done_;
  });
  if (stopping_ && Clock::now() >= deadline_ && !queue_.empty()) {
    log_warn("store writer: " + std::to_string(queue_.size()) + " writes are lost: stopping took " +
             "too long");
    stats_.dropped += static_cast<std::int64_t>(queue_.size());
    done_ += queue_.size();
    queue_.clear();
    changed_.notify_all();
  }
  std::vector<Entry> entries;
  const std::size_t count = std::min(queue_.size(), std::max<std::size_t>(1, options_.batch));
  entries.reserve(count);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bytes += queue_.front().bytes;
    if (i > 0 && bytes > batch_bytes_) break;
    queued_bytes_ -= queue_.front().bytes;
    entries.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return entries;
}

void StoreWriter::write(const std::vector<Entry>& entries) {
  Outcome outcome;
  const auto body = [&entries, &outcome](Store& store) -> Result<void> {
    outcome = {};
    for (const Entry& entry : entries) {
      std::string failure;
      try {
        const auto done = entry.task ? entry.task(store) : Result<void>();
        if (done) continue;
        failure = done.error().message;
      } catch (const std::exception& error) {
        failure = error.what();
      } catch (...) {
        failure = "an exception of an unknown type";
      }
      if (outcome.failed++ == 0) outcome.first_failure = failure;
    }
    return {};
  };
  auto written = store_.transaction(body);
  if (!written) {
    if (written.error().code == ErrorCode::kOverBudget) {
      const auto pruned = store_.prune();
      if (!pruned) log_warn("store writer: " + pruned.error().message);
    }
    written = store_.transaction(body);
  }
  if (!written) log_warn("store writer: a batch is lost: " + written.error().message);
  if (written && outcome.failed > 0) {
    log_warn("store writer: " + std::to_string(outcome.failed) +
             " writes failed, first: " + outcome.first_failure);
  }
  const auto count = static_cast<std::int64_t>(entries.size());
  const std::lock_guard lock(mutex_);
  done_ += entries.size();
  ++stats_.transactions;
  if (written) {
    stats_.written += count - outcome.failed;
    stats_.failed += outcome.failed;
  } else {
    stats_.dropped += count;
  }
  changed_.notify_all();
}

void StoreWriter::prune_when_due() {
  if (Clock::now() - pruned_at_ < options_.prune_interval && !store_.crowded()) return;
  pruned_at_ = Clock::now();
  const auto pruned = store_.prune();
  if (!pruned) log_warn("store writer: " + pruned.error().message);
}

}  // namespace pudica::daemon
