// `pudica doctor`: why nothing is registered, step by step from the environment to the runs.
#include <ostream>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/socket_probe.h"
#include "config/config.h"
#include "inspect/run_protocol.h"
#include "inspect/socket_path.h"
#include "inspect/user_names.h"

namespace pudica::cli {
namespace {

struct Finding {
  enum class Level { kOk, kNote, kProblem };
  std::string check;
  Level level = Level::kOk;
  std::string found;
  std::string advice;  // empty: nothing to do
};

// Collects findings; the exit code follows from them.
class Examination {
 public:
  void ok(std::string check, std::string found) {
    findings_.push_back({std::move(check), Finding::Level::kOk, std::move(found), {}});
  }
  void note(std::string check, std::string found, std::string advice) {
    findings_.push_back(
        {std::move(check), Finding::Level::kNote, std::move(found), std::move(advice)});
  }
  void problem(std::string check, std::string found, std::string advice) {
    findings_.push_back(
        {std::move(check), Finding::Level::kProblem, std::move(found), std::move(advice)});
    problems_ = true;
  }
  void unreachable() { unreachable_ = true; }

  [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
  [[nodiscard]] int exit_code() const {
    if (unreachable_) return kExitUnreachable;
    return problems_ ? kExitFailed : kExitDone;
  }

 private:
  std::vector<Finding> findings_;
  bool problems_ = false;
  bool unreachable_ = false;
};

std::string socket_origin(const Arguments& arguments) {
  if (!arguments.socket.empty()) return "--socket";
  for (const char* name : {"PUDICA_SOCKET", "XDG_RUNTIME_DIR"}) {
    const auto value = process_environment(name);
    if (value && !value->empty()) return name;
  }
  return geteuid() == 0 ? "the default for root" : "the default, since XDG_RUNTIME_DIR is not set";
}

void examine_switch(Examination& examination) {
  const auto value = process_environment("PUDICA_DISABLE");
  if (!value || value->empty() || *value == "0") {
    examination.ok("enabled", "PUDICA_DISABLE is not set");
    return;
  }
  examination.problem("enabled", "PUDICA_DISABLE=" + *value + ": pudica is off",
                      "unset PUDICA_DISABLE where the training starts");
}

void examine_config(const Arguments& arguments, const std::string& socket,
                    Examination& examination) {
  std::string path = arguments.config;
  if (path.empty()) path = process_environment("PUDICA_CONFIG").value_or("");
  ParsedConfig parsed;
  if (!path.empty()) parsed = load_config(path);
  ConfigErrors errors = parsed.errors;
  for (const auto& error : apply_environment(process_environment, parsed.config)) {
    errors.push_back(error);
  }
  const std::string source = path.empty() ? "no file, defaults and environment" : path;
  if (!errors.empty()) {
    examination.problem(
        "configuration", errors.front(),
        "`pudica config " + (path.empty() ? "show" : "check " + path) + "` lists every error");
    return;
  }
  if (!parsed.config.daemon.enabled) {
    examination.problem("configuration", "daemon.enabled is false in " + source,
                        "set daemon.enabled to true: runs do not register otherwise");
    return;
  }
  const std::string& named = parsed.config.daemon.socket;
  if (!named.empty() && named != socket) {
    examination.problem("configuration",
                        "daemon.socket is " + named + ", this command looks at " + socket,
                        "use the same socket: pudica --socket " + named);
    return;
  }
  examination.ok("configuration", source);
}

void examine_directory(const SocketProbe& probe, Examination& examination) {
  const std::string found = fmt::format("{}, mode {:04o}, owner {}", probe.directory,
                                        probe.directory_mode, probe.directory_owner);
  if (probe.directory_fault.empty()) return examination.ok("directory", found);
  examination.problem("directory", found + ": " + probe.directory_fault,
                      "runs and commands stay away from it: name another with --socket");
}

// What others may do here, where somebody said that they may do anything.
void examine_sharing(const SocketProbe& probe, Examination& examination) {
  if (probe.sharing_group.empty()) return;
  examination.note("sharing", "group " + probe.sharing_group + " may use the socket",
                   "its members see every run but its command line, register runs, share their "
                   "budget groups and learned models, and steer and end those of their own");
}

// Whether somebody listens there.
bool examine_socket(const std::string& path, Examination& examination) {
  using State = SocketProbe::State;
  const SocketProbe probe = probe_socket(path, SocketTrust::from_environment());
  const std::string start = "start it: pudicad (or systemctl --user start pudicad)";
  if (probe.state == State::kNoDirectory) {
    examination.problem("listener", "there is no directory " + probe.directory, start);
    return false;
  }
  examine_directory(probe, examination);
  const std::string who =
      probe.owner.empty() ? "" : fmt::format(", mode {:04o}, owner {}", probe.mode, probe.owner);
  if (!probe.directory_fault.empty()) return false;
  if (!probe.socket_fault.empty()) {
    examination.problem("listener", probe.socket_fault,
                        "runs and commands stay away from it: name another with --socket");
    return false;
  }
  examine_sharing(probe, examination);
  switch (probe.state) {
    case State::kListening:
      examination.ok("listener", probe.listener_process
                                     ? fmt::format("{}, process {}{}", probe.listener,
                                                   *probe.listener_process, who)
                                     : "somebody listens" + who);
      return true;
    case State::kMissing:
      examination.problem("listener", "there is no socket: pudicad is not running here", start);
      break;
    case State::kNotASocket:
      examination.problem("listener", "this is no socket" + who, "name another with --socket");
      break;
    case State::kRefused:
      examination.problem("listener", "nobody listens: pudicad has stopped" + who, start);
      break;
    case State::kDenied:
      examination.problem("listener", "permission denied for " + user_name(geteuid()) + who,
                          "run as its owner, or let pudicad admit your group");
      break;
    case State::kNoDirectory:
    case State::kOther:
      examination.problem("listener", probe.problem + who, "name another with --socket");
      break;
  }
  return false;
}

// Who reads what the daemon serves over TCP.
void examine_tcp(const Json& version, Examination& examination) {
  const auto tcp = version.find("tcp");
  if (tcp == version.end() || !tcp->is_object()) return;
  const std::string address = text(*tcp, "address");
  const std::string readers = text(*tcp, "readers");
  if (readers == "everyone") {
    examination.note("tcp", address + ": everybody who reaches it reads, without command lines",
                     "pudicad --listen-token-file FILE asks for a token");
  } else if (readers == "token") {
    examination.ok("tcp", address + ": pudicad's user, root and whoever has the token read");
  } else {
    examination.ok("tcp", address + ": pudicad's user and root on this machine read");
  }
}

bool examine_version(Session& session, Examination& examination) {
  const auto version = session.daemon.get("/v1/version");
  if (!version) {
    examination.problem("daemon", version.error().message,
                        "restart pudicad, or see whether another program has the socket");
    return false;
  }
  const auto newest = integer(*version, "protocol");
  const auto oldest = integer(*version, "protocol_min");
  if (text(*version, "name") != "pudicad" || !newest) {
    examination.problem("daemon", "the answer is not that of pudicad: " + dump(*version),
                        "another program has the socket");
    return true;
  }
  const std::string theirs = text(*version, "version");
  const std::string found = fmt::format("pudicad {}, protocol {}, up {}", theirs, *newest,
                                        duration_text(number(*version, "uptime_seconds")));
  if (*newest < kProtocolOldest || oldest.value_or(*newest) > kProtocol) {
    examination.problem("daemon",
                        fmt::format("{}; this program ({}) speaks protocol {} to {}", found,
                                    PUDICA_VERSION, kProtocolOldest, kProtocol),
                        "install the same version of both, then restart pudicad");
  } else if (theirs != PUDICA_VERSION) {
    examination.note("daemon", found, "this program is version " PUDICA_VERSION);
  } else {
    examination.ok("daemon", found);
  }
  examine_tcp(*version, examination);
  return true;
}

void examine_runs(Session& session, Examination& examination) {
  const auto answer = session.daemon.get("/v1/runs?all=true");
  if (!answer) {
    examination.problem("runs", answer.error().message, "");
    return;
  }
  std::size_t live = 0;
  std::string lost;
  std::int64_t dropped = 0;
  const Json& runs = list(*answer, "runs");
  for (const Json& run : runs) {
    const std::string state = text(run, "state");
    if (state != "ended" && state != "lost") ++live;
    if (state == "lost") lost += (lost.empty() ? "" : ", ") + text(run, "id");
    dropped += integer(run, "dropped_records").value_or(0);
  }
  const std::string found = fmt::format("{} live, {} in all", live, runs.size());
  if (!lost.empty()) {
    examination.note("runs", found + "; lost: " + clipped(sanitised(lost, {}), 60, {}),
                     "a lost run fell silent: its process was killed or stopped");
  } else if (live == 0) {
    examination.note("runs", found + ": no training has registered",
                     "start one: pudica-train --daemon, as the same user and with the same "
                     "PUDICA_SOCKET");
  } else if (dropped > 0) {
    examination.note("runs", found + fmt::format("; {} step records were dropped", dropped),
                     "the daemon was away or slow; training is not affected");
  } else {
    examination.ok("runs", found);
  }
}

const char* level_name(Finding::Level level) {
  switch (level) {
    case Finding::Level::kOk:
      return "ok";
    case Finding::Level::kNote:
      return "note";
    case Finding::Level::kProblem:
      break;
  }
  return "problem";
}

void print_findings(Session& session, const Examination& examination) {
  const Style& style = session.style;
  for (const Finding& finding : examination.findings()) {
    const Colour colour = finding.level == Finding::Level::kOk     ? Colour::kGreen
                          : finding.level == Finding::Level::kNote ? Colour::kYellow
                                                                   : Colour::kRed;
    const std::string level = level_name(finding.level);
    if (!style.terminal) {
      session.out << finding.check << '\t' << level << '\t' << sanitised(finding.found, style)
                  << '\t' << (finding.advice.empty() ? kNothing : sanitised(finding.advice, style))
                  << '\n';
      continue;
    }
    session.out << painted(level, colour, style) << std::string(9 - level.size(), ' ')
                << finding.check
                << std::string(15 - std::min<std::size_t>(14, finding.check.size()), ' ')
                << sanitised(finding.found, style) << '\n';
    if (!finding.advice.empty()) {
      session.out << std::string(9, ' ') << painted("-> ", Colour::kDim, style)
                  << sanitised(finding.advice, style) << '\n';
    }
  }
}

Json findings_json(const Examination& examination, const std::string& socket,
                   const std::string& origin) {
  Json checks = Json::array();
  for (const Finding& finding : examination.findings()) {
    checks.push_back({{"check", finding.check},
                      {"level", level_name(finding.level)},
                      {"found", valid_utf8(finding.found)},
                      {"advice", finding.advice.empty() ? Json() : Json(finding.advice)}});
  }
  return {{"healthy", examination.exit_code() == kExitDone},
          {"socket", socket},
          {"socket_from", origin},
          {"checks", std::move(checks)}};
}

}  // namespace

int doctor_command(Session& session) {
  Examination examination;
  const std::string socket = daemon_socket_path(session.arguments.socket);
  const std::string origin = socket_origin(session.arguments);
  examine_switch(examination);
  examine_config(session.arguments, socket, examination);
  examination.ok("socket", socket + ", from " + origin);
  if (examine_socket(socket, examination) && examine_version(session, examination)) {
    examine_runs(session, examination);
  } else {
    examination.unreachable();
  }
  if (session.arguments.json) {
    print_json(session, findings_json(examination, socket, origin));
  } else {
    if (!session.style.terminal) session.out << "check\tlevel\tfound\tadvice\n";
    print_findings(session, examination);
  }
  return examination.exit_code();
}

}  // namespace pudica::cli
