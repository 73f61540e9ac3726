#include "daemon/run_models.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/safe_text.h"

namespace pudica::daemon {
namespace {

constexpr std::size_t kViewsKept = 8;

}  // namespace

RunModels::RunModels(RunRegistry& registry, Archive& archive)
    : registry_(registry), archive_(archive) {
  archive_.load_models(pool_);
}

void RunModels::learn(const RunSummary& run, const StepRecord& record) {
  const std::string& fingerprint = run.about->fingerprint;
  if (fingerprint.empty() || !record.profiles) return;
  note_learned(run, pool_.observe(fingerprint, record, run.id));
}

void RunModels::adopt(const RunSummary& run, const std::string& state) {
  const std::string& fingerprint = run.about->fingerprint;
  if (fingerprint.empty()) return;
  note_learned(run, pool_.adopt(fingerprint, state, run.id));
}

void RunModels::note_learned(const RunSummary& run, const Result<bool>& risen) {
  if (!risen) {
    log_info("nothing learned: run=" + run.id + " error=" + log_value(risen.error().message));
    return;
  }
  if (!*risen) return;
  const std::lock_guard lock(mutex_);
  news_[run.about->fingerprint].insert(run.id);
}

std::optional<std::string> RunModels::state(const std::string& fingerprint) {
  if (fingerprint.empty()) return std::nullopt;
  return pool_.state(fingerprint);
}

bool RunModels::remove(const std::string& fingerprint) {
  const std::lock_guard saving(saving_);
  if (!pool_.remove(fingerprint)) return false;
  archive_.remove_model(fingerprint);
  const std::lock_guard lock(mutex_);
  news_.erase(fingerprint);
  views_.clear();  // versions begin anew
  return true;
}

bool RunModels::knows(const RunDetail& run) const {
  return run.model != nullptr || pool_.version(run.summary.about->fingerprint) > 0;
}

Result<std::shared_ptr<const inspect::ModelView>> RunModels::view(const AskedRun& run) {
  const std::string& fingerprint = run.fingerprint;
  CachedView wanted;
  wanted.run = run.id;
  wanted.own_state = run.own_state;
  wanted.pool_version = run.own_state == nullptr ? pool_.version(fingerprint) : 0;
  wanted.base_bytes = run.base_bytes;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(views_, [&wanted](const CachedView& cached) {
      return cached.run == wanted.run && cached.own_state == wanted.own_state &&
             cached.pool_version == wanted.pool_version && cached.base_bytes == wanted.base_bytes;
    });
    if (found != views_.end()) {
      views_.splice(views_.begin(), views_, found);
      return found->view;
    }
  }
  const auto text = run.own_state != nullptr ? std::optional(*run.own_state) : state(fingerprint);
  if (!text) {
    return Error{ErrorCode::kUnavailable,
                 run.live ? "nothing is learned of run '" + run.id +
                                "' yet: its learning steps have not come, or it has no fingerprint"
                          : "the run '" + run.id +
                                "' has ended, and what it learned was not kept: it had no "
                                "fingerprint, or its model was dropped since"};
  }
  inspect::ModelViewOptions options;
  options.base_bytes = run.base_bytes;
  auto made = inspect::ModelView::from_state(*text, fingerprint, options);
  if (!made) return made.error().with_context("learned state of run '" + run.id + "'");
  wanted.view = std::make_shared<const inspect::ModelView>(std::move(*made));
  const std::lock_guard lock(mutex_);
  std::erase_if(views_, [&wanted](const CachedView& cached) { return cached.run == wanted.run; });
  views_.push_front(wanted);
  if (views_.size() > kViewsKept) views_.pop_back();
  return wanted.view;
}

void RunModels::tick() {
  std::map<std::string, std::set<std::string>> news;
  {
    const std::lock_guard lock(mutex_);
    news.swap(news_);
  }
  if (news.empty()) return;
  for (const RunSummary& run : registry_.list(RunRegistry::Which::kLive)) {
    const auto found = news.find(run.about->fingerprint);
    if (found == news.end()) continue;
    const bool taught_it_alone = found->second.size() == 1 && found->second.contains(run.id);
    if (!taught_it_alone && !registry_.push_model(run.id)) continue;  // it ended meanwhile
  }
  const std::lock_guard saving(saving_);
  for (const auto& [fingerprint, runs] : news) {
    const auto stats = pool_.stats(fingerprint);
    auto state = pool_.state(fingerprint);
    if (stats && state) archive_.save(*stats, std::move(*state));
  }
}

}  // namespace pudica::daemon
