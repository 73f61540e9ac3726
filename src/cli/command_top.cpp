// `pudica top`: the runs, drawn again and again.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <ostream>
#include <poll.h>
#include <sstream>
#include <termios.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/taken_signals.h"
#include "cli/view_runs.h"

namespace pudica::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
volatile std::sig_atomic_t resized = 0;

void on_signal(int signal) { (signal == SIGWINCH ? resized : stop_requested) = 1; }

// Stop and size, for as long as it lives; what came before is forgotten.
TakenSignals<4> take_signals() {
  stop_requested = 0;
  return {{SIGINT, SIGTERM, SIGHUP, SIGWINCH}, on_signal};
}

// The alternate screen without a cursor, and keys without the return key; put back at the end.
class Screen {
 public:
  explicit Screen(std::ostream& out) : out_(out) {
    keyboard_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keyboard_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    out_ << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  ~Screen() {
    out_ << "\x1b[?25h\x1b[?1049l" << std::flush;
    if (keyboard_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  [[nodiscard]] bool keyboard() const { return keyboard_; }

  // The lines that fit, without flicker: each is cleared to its end, the rest of the screen last.
  void draw(const std::string& text, std::size_t height) {
    std::string frame = "\x1b[H";
    std::istringstream lines(text);
    std::size_t used = 0;
    for (std::string line; used < height && std::getline(lines, line); ++used) {
      frame += (used == 0 ? "" : "\r\n") + line + "\x1b[K";
    }
    out_ << frame << "\x1b[J" << std::flush;
  }

 private:
  std::ostream& out_;
  termios before_{};
  bool keyboard_ = false;
};

std::string heading(const Json& version, const Json& runs, const Style& style) {
  std::string line = painted("pudica top", Colour::kBold, style);
  line += "  pudicad " + clipped(sanitised(text(version, "version"), style), 20, style) + ", up " +
          duration_text(number(version, "uptime_seconds")) + ", " + std::to_string(runs.size()) +
          (runs.size() == 1 ? " run" : " runs");
  std::int64_t budget = 0;
  for (const Json& run : runs)
    budget += std::clamp<std::int64_t>(integer(run, "budget_bytes").value_or(0), 0,
                                       std::int64_t{1} << 50U);
  return line + ", " + bytes_text(budget) + " in budgets";
}

Result<std::string> page(Session& session, const Style& style) {
  const auto version = session.daemon.get("/v1/version");
  if (!version) return version.error();
  const auto answer = session.daemon.get("/v1/runs");
  if (!answer) return answer.error();
  const Json& runs = list(*answer, "runs");
  std::ostringstream out;
  out << heading(*version, runs, style) << "\n\n";
  if (runs.empty()) {
    out << "No run is registered; `pudica doctor` says why.\n";
  } else {
    print_run_table(out, runs, {style, std::time(nullptr)});
  }
  const Json& groups = list(*answer, "groups");
  if (!groups.empty()) {
    out << '\n';
    print_group_table(out, groups, style);
  }
  return out.str();
}

std::size_t screen_height() {
  constexpr std::size_t kUsual = 24;
  const auto size = terminal_rows(STDOUT_FILENO);
  return size == 0 ? kUsual : size;
}

using Clock = std::chrono::steady_clock;

// Until the time has come, a key, a signal or a new size. True: leave.
bool wait_for(const Screen& screen, Clock::time_point until) {
  for (;;) {
    if (stop_requested != 0) return true;
    if (resized != 0) return false;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    pollfd keys{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&keys, screen.keyboard() ? 1 : 0, static_cast<int>(left.count()));
    if (ready <= 0) continue;
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q') return true;
  }
}

std::chrono::milliseconds interval(const Session& session) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(session.arguments.interval_seconds * 1000));
}

int live(Session& session) {
  const auto signals = take_signals();
  Screen screen(session.out);
  for (;;) {
    const auto next = Clock::now() + interval(session);
    resized = 0;
    const Style style = detect_style(STDOUT_FILENO, session.arguments.no_color);
    const auto text = page(session, style);
    const std::string shown = text ? *text
                                   : painted("pudica top", Colour::kBold, style) + "\n\n" +
                                         sanitised(text.error().message, style) +
                                         "\n\nTrying again.";
    screen.draw(shown, screen_height());
    if (wait_for(screen, next)) return kExitDone;
  }
}

int repeated(Session& session) {
  const auto signals = take_signals();
  for (bool first = true;; first = false) {
    const auto answer = session.daemon.get("/v1/runs");
    if (!answer) return fail(session, answer.error());
    std::vector<const Json*> rows;
    for (const Json& run : list(*answer, "runs")) rows.push_back(&run);
    if (session.arguments.json) {
      session.out << dump(*answer) << '\n';
    } else {
      if (!first) session.out << '\n';
      print_fields(session.out, run_fields(), rows);
    }
    session.out << std::flush;
    if (session.arguments.once) return kExitDone;
    if (!session.out) return kExitDone;  // the reader has left
    const auto until = Clock::now() + interval(session);
    while (stop_requested == 0 && Clock::now() < until) {
      poll(
          nullptr, 0,
          static_cast<int>(
              std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count()) +
              1);
    }
    if (stop_requested != 0) return kExitDone;
  }
}

}  // namespace

int top_command(Session& session) {
  if (session.arguments.json || !session.style.terminal) return repeated(session);
  if (!session.arguments.once) return live(session);
  const auto text = page(session, session.style);
  if (!text) return fail(session, text.error());
  session.out << *text;
  return kExitDone;
}

}  // namespace pudica::cli
