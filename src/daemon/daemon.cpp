#include "daemon/daemon.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/safe_text.h"
#include "daemon/access.h"
#include "daemon/api.h"
#include "daemon/archive.h"
#include "daemon/budget_desk.h"
#include "daemon/file_lock.h"
#include "daemon/http_server.h"
#include "daemon/listener.h"
#include "daemon/notify.h"
#include "daemon/run_models.h"
#include "daemon/run_registry.h"
#include "daemon/version.h"
#include "inspect/socket_path.h"

namespace pudica::daemon {
namespace {

constexpr rlim_t kSpareDescriptors = 64;
constexpr int kArenas = 2;
constexpr int kMmapThreshold = 256 * 1024;

// Many threads that each live briefly: without this every one gets memory of its own to keep.
void tune_allocator() {
  ::mallopt(M_ARENA_MAX, kArenas);
  ::mallopt(M_MMAP_THRESHOLD, kMmapThreshold);
  ::mallopt(M_TRIM_THRESHOLD, kMmapThreshold);
}

// How many connections each of `listeners` may have, `wanted` where the system allows. Where it
// does not, each has a part of its own: connections of one cannot take the descriptors of another.
std::size_t connections_each(std::size_t wanted, std::size_t listeners) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t descriptors = wanted * listeners + kSpareDescriptors;
  if (limit.rlim_cur < descriptors) {
    rlimit raised = limit;
    raised.rlim_cur = std::min(descriptors, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur >= descriptors) return wanted;
  const rlim_t left = limit.rlim_cur - std::min(limit.rlim_cur, kSpareDescriptors);
  const std::size_t each = std::max<std::size_t>(1, left / listeners);
  log_warn("descriptors: limit=" + std::to_string(limit.rlim_cur) +
           " wanted=" + std::to_string(descriptors) + ": " + std::to_string(each) +
           " connections on each listener, configured " + std::to_string(wanted));
  return each;
}

sigset_t block_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return set;
}

std::string database_path(const std::string& given) {
  if (!given.empty()) return given;
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? std::string() : std::string(text);
  };
  if (const std::string state = value("XDG_STATE_HOME"); !state.empty()) {
    return state + "/pudica/pudicad.db";
  }
  const std::string home = value("HOME");
  return (home.empty() ? std::string("/var/lib") : home + "/.local/state") + "/pudica/pudicad.db";
}

Result<void> open_sockets(const DaemonConfig& config, Listeners& listeners) {
  const auto remote =
      config.allow_remote ? Listeners::Remote::kAllowed : Listeners::Remote::kRefused;
  if (auto added = listeners.add_systemd(remote); !added) return added;
  if (!listeners.has(Transport::kUnix)) {
    auto added = listeners.add_unix(daemon_socket_path(config.socket), config.socket_group);
    if (!added) return added;
  }
  if (config.listen.empty()) return {};
  return listeners.add_tcp(config.listen, remote);
}

void set_groups(const DaemonConfig& config, BudgetDesk& budgets) {
  for (const auto& [name, total] : config.groups) {
    if (auto set = budgets.set_total_of_file(name, total); !set) {
      log_warn("group refused: name=" + log_value(name) +
               " error=" + log_value(set.error().message));
    }
  }
}

RegistryLimits registry_limits(const DaemonConfig& config) {
  return {static_cast<std::size_t>(config.limits.runs),
          static_cast<std::size_t>(config.limits.ended_runs), config.run_timeout_seconds};
}

HttpServerOptions server_options(const DaemonConfig& config, std::size_t listeners) {
  HttpServerOptions out;
  out.connections =
      connections_each(static_cast<std::size_t>(config.limits.connections), listeners);
  out.body_bytes = static_cast<std::size_t>(config.limits.body_bytes);
  out.request_seconds = config.limits.request_seconds;
  out.any_address_as_host = config.allow_remote;
  return out;
}

// What a daemon that runs cannot change, and the file wants otherwise than when it started.
void log_left_alone(const DaemonConfig& started, const DaemonConfig& now) {
  const auto changed = [](const char* key, bool differs) {
    if (differs) log_warn(std::string("configuration: ") + key + " counts from the next start on");
  };
  changed("socket", started.socket != now.socket);
  changed("socket_group", started.socket_group != now.socket_group);
  changed("database", started.database != now.database);
  changed("listen", started.listen != now.listen);
  changed("allow_remote", started.allow_remote != now.allow_remote);
  changed("limits.database_bytes", started.limits.database_bytes != now.limits.database_bytes);
}

// What takes up a configuration while it runs.
struct Reloaded {
  RunRegistry& registry;
  BudgetDesk& budgets;
  HttpServer& server;
  std::size_t listeners = 1;
};

void reload(const Options& options, const DaemonConfig& started, const Reloaded& parts) {
  notify_systemd(reloading_message());
  const auto config = read_config(options);
  if (config) {
    set_log_level(config->log_level);
    parts.registry.set_limits(registry_limits(*config));
    parts.server.set_limits(server_options(*config, parts.listeners));
    set_groups(*config, parts.budgets);
    log_left_alone(started, *config);
    log_info("configuration reloaded: file=" + log_value(options.config_file));
  } else {
    log_warn("configuration refused, the old one stays: " + config.error().message);
  }
  notify_systemd("READY=1");
}

// Until a signal ends it.
void serve(const sigset_t& signals, const std::function<void()>& reload_config, Api& api) {
  for (;;) {
    const timespec second{1, 0};
    const int signal = ::sigtimedwait(&signals, nullptr, &second);
    if (signal == SIGTERM || signal == SIGINT) {
      log_info("stopping: signal=" + std::to_string(signal));
      return;
    }
    if (signal == SIGHUP) reload_config();
    api.tick();
  }
}

Finished failed(const Error& error) {
  const bool usage = error.code == ErrorCode::kInvalidArgument;
  return {usage ? kExitUsage : kExitFailed, "pudicad: " + error.message + "\n"};
}

Result<Access> access_of(const DaemonConfig& config) {
  AccessOptions options;
  options.user_id = ::geteuid();
  options.everyone_reads = config.allow_remote;
  if (config.listen_token_file.empty()) return Access(options);
  auto token = read_token(config.listen_token_file);
  if (!token) return token.error();
  options.token = std::move(*token);
  return Access(options);
}

DaemonFacts facts_of(const DaemonConfig& config, const Listeners& listeners,
                     const std::string& database) {
  DaemonFacts facts{std::string(kVersion), {}, database, config.socket_group, {}};
  for (const ListenSocket& socket : listeners.sockets()) {
    std::string& first = socket.transport == Transport::kUnix ? facts.socket : facts.tcp_address;
    if (first.empty()) first = socket.name;
  }
  return facts;
}

// What somebody who shares the daemon should have read.
void log_sharing(const DaemonFacts& facts, const Access& access) {
  if (!facts.socket_group.empty()) {
    log_warn("socket shared: group=" + log_value(facts.socket_group) +
             " its members see every run but its command line, register runs, share budget groups "
             "and learned models, and steer and end those of their own");
  }
  if (facts.tcp_address.empty()) return;
  log_info("tcp: at=" + log_value(facts.tcp_address) + " readers=" + access.readers());
}

}  // namespace

Finished run_daemon(const Options& options, const DaemonConfig& config) {
  set_log_level(config.log_level);
  tune_allocator();
  const sigset_t signals = block_signals();

  auto access = access_of(config);
  if (!access) {
    return failed(access.error());
  }
  Listeners listeners;
  if (auto opened = open_sockets(config, listeners); !opened) {
    return failed(opened.error());
  }
  StoreOptions store;
  store.path = database_path(config.database);
  store.max_bytes = config.limits.database_bytes.count();
  const auto lock = lock_database(store.path);
  if (!lock) {
    return failed(lock.error());
  }
  auto archive = Archive::open(store);
  if (!archive) {
    return failed(archive.error());
  }
  const Clock clock = system_clocks();
  RunRegistry registry(clock, registry_limits(config));
  BudgetDesk budgets(registry, clock, **archive);
  set_groups(config, budgets);
  RunModels models(registry, **archive);
  const DaemonFacts facts = facts_of(config, listeners, store.path);
  Api api(facts, {clock, registry, budgets, models, **archive, *access});
  HttpServer server(
      server_options(config, listeners.sockets().size()),
      [&api](const ApiRequest& request) { return api.handle(request); },
      [&api](int status) { api.count_answer(status); });
  api.count_connections([&server] { return server.open_connections(); });
  if (auto started = server.start(listeners.sockets()); !started) {
    return failed(started.error());
  }
  for (const ListenSocket& socket : listeners.sockets())
    log_info("listening: at=" + log_value(socket.name));
  log_sharing(facts, *access);
  notify_systemd("READY=1");
  const Reloaded parts{registry, budgets, server, listeners.sockets().size()};
  serve(
      signals, [&] { reload(options, config, parts); }, api);
  notify_systemd("STOPPING=1");
  registry.stop();
  budgets.stop();
  server.stop();
  models.tick();  // what was learned in the last second too
  api.save_all();
  (*archive)->stop();
  log_info("stopped");
  return {kExitDone, {}};
}

}  // namespace pudica::daemon
