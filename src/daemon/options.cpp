#include "daemon/options.h"

#include <cstdlib>

#include <CLI/CLI.hpp>

#include "daemon/access.h"
#include "daemon/config_check.h"
#include "daemon/version.h"

namespace pudica::daemon {
namespace {

constexpr const char* kDescription =
    "pudicad: sees and steers every training process that plans with pudica.";

constexpr const char* kFooter = R"(examples:
  pudicad                                    listen on the usual socket
  pudicad --socket run/pudicad.sock --database run/pudicad.db
  pudicad --listen 127.0.0.1:9400            the page and /metrics for a browser, read-only
  pudicad --config pudicad.json --check-config

signals: SIGHUP reads the configuration file again; SIGTERM and SIGINT end the daemon.
exit codes: 0 done, 1 failed, 2 usage or a bad configuration file.
See pudicad(8); the API is described at /v1/openapi.json.)";

void declare(CLI::App& app, Options& options) {
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("pudicad ") + kVersion);
  app.add_option("--socket", options.socket,
                 "UNIX socket (default: $PUDICA_SOCKET, else $XDG_RUNTIME_DIR/pudica/pudicad.sock, "
                 "else /run/pudica for root, else /tmp/pudica-UID)")
      ->type_name("PATH");
  app.add_option("--socket-group", options.socket_group,
                 "let this group use the socket too (mode 0660)")
      ->type_name("NAME");
  app.add_option("--database", options.database,
                 "SQLite file (default: $XDG_STATE_HOME/pudica/pudicad.db, else "
                 "~/.local/state/pudica/pudicad.db)")
      ->type_name("PATH");
  app.add_option("--config", options.config_file, "configuration file (JSON)")->type_name("FILE");
  app.add_flag("--check-config", options.check_config,
               "report every error of the configuration and end (0: none, 2: some)");
  app.add_option("--listen", options.listen,
                 "serve the page and /metrics here as well, read-only; loopback only")
      ->type_name("ADDRESS:PORT");
  app.add_option("--listen-token-file", options.listen_token_file,
                 "whoever shows this file's token may read there too, not only this user and root")
      ->type_name("FILE");
  app.add_flag("--allow-remote", options.allow_remote,
               "allow an address that is not loopback for --listen; without a token everybody who "
               "reaches it reads, without command lines");
  app.add_option("--log-level", options.log_level, "off, error, warn, info or debug")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"off", "error", "warn", "info", "debug"}));
}

}  // namespace

std::variant<Options, Finished> parse_options(int argc, const char* const* argv) {
  Options options;
  CLI::App app(kDescription, "pudicad");
  declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Finished{kExitDone, app.help()};
  } catch (const CLI::CallForVersion&) {
    return Finished{kExitDone, app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    return Finished{kExitUsage,
                    std::string("pudicad: ") + error.what() + "\nSee pudicad --help.\n"};
  }
  return options;
}

Result<DaemonConfig> read_config(const Options& options) {
  DaemonConfig config;
  if (!options.config_file.empty()) {
    auto read = load_daemon_config(options.config_file).result();
    if (!read) return read;
    config = std::move(*read);
  }
  const auto take = [](const std::optional<std::string>& given, std::string& value) {
    if (given) value = *given;
  };
  // Arguments over environment over file.
  const auto environment = [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  take(environment("PUDICA_SOCKET"), config.socket);
  take(environment("PUDICA_LOG"), config.log_level);
  take(options.socket, config.socket);
  take(options.socket_group, config.socket_group);
  take(options.database, config.database);
  take(options.listen, config.listen);
  take(options.listen_token_file, config.listen_token_file);
  take(options.log_level, config.log_level);
  if (options.allow_remote) config.allow_remote = true;
  std::string message;
  for (const std::string& fault : config_faults(config)) {
    message += (message.empty() ? "pudicad: " : "\npudicad: ") + fault;
  }
  if (!message.empty()) return invalid_argument(message);
  if (config.listen_token_file.empty()) return config;
  const auto token = read_token(config.listen_token_file);  // what a start would refuse
  return token ? Result<DaemonConfig>(config) : token.error();
}

}  // namespace pudica::daemon
