// `pudica rehearse`: a training command on the emulated device, as it is and planned.
#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

#include "cli/commands.h"
#include "cli/rehearsal_answer.h"
#include "cli/rehearsal_cards.h"
#include "cli/rehearsal_run.h"
#include "cli/training_command.h"
#include "cli/view_rehearsal.h"
#include "config/config.h"

namespace pudica::cli {
namespace {

constexpr int kExitNoPlanFits = 4;
constexpr int kExitBySignal = 128;
constexpr Bytes kUnlimited{std::int64_t{1} << 40U};

// A folder that goes with it.
class Scratch {
 public:
  Scratch() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pudica-rehearsal-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return;
    path_ = pattern;
    std::error_code failed;
    std::filesystem::create_directory(path_ + "/tmp", failed);
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const emulated::Card* card_named(std::string name) {
  if (name.empty()) return emulated::find_card("A100-80");
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return emulated::find_card(name);
}

std::string stand_in() {
  constexpr const char* kFile = "libemulated_device.so";
  if (const auto folder = process_environment("PUDICA_EMULATED_DIR"); folder && !folder->empty()) {
    return *folder + "/" + kFile;
  }
  for (const char* const below : {"emulated_device/", "lib/emulated_device/"}) {
    const std::string found = installed_beside(std::string(below) + kFile);
    if (!found.empty()) return found;
  }
  return {};
}

Result<Rehearsal> settings_of(const Arguments& arguments, const std::string& folder) {
  Rehearsal out;
  out.card = card_named(arguments.card);
  if (out.card == nullptr) {
    return invalid_argument("--device is '" + arguments.card + "'; expected one of " +
                            emulated::card_names());
  }
  out.memory = Bytes{static_cast<std::int64_t>(out.card->memory_bytes)};
  if (!arguments.memory.empty()) {
    const auto memory = parse_bytes(arguments.memory);
    if (!memory) return memory.error().with_context("--memory");
    out.memory = *memory;
  }
  const Bytes context{static_cast<std::int64_t>(out.card->context_bytes)};
  if (out.memory <= context || out.memory >= kUnlimited) {
    return invalid_argument("--memory is " + format_bytes(out.memory) + "; expected more than " +
                            format_bytes(context) + ", which the context takes, and less than " +
                            format_bytes(kUnlimited));
  }
  if (!arguments.budget.empty()) {
    const auto budget = parse_budget(arguments.budget);
    if (!budget) return budget.error().with_context("--budget");
    out.budget = budget_of_training(*budget);
  }
  if (const auto option = option_against_pythonpath(arguments.program); !option.empty()) {
    return invalid_argument("python " + option +
                            " looks at no PYTHONPATH or site; expected a command without it");
  }
  out.library = stand_in();
  out.startup = installed_beside("share/pudica/startup");
  std::error_code failed;
  if (out.library.empty() || !std::filesystem::exists(out.library, failed)) {
    return invalid_argument(
        "no emulated device beside this program; expected "
        "emulated_device/libemulated_device.so, which a build for a torch "
        "with CUDA has, or PUDICA_EMULATED_DIR");
  }
  if (out.startup.empty() || folder.empty()) {
    return invalid_argument("no share/pudica/startup beside this program, or no temporary folder");
  }
  out.devices = arguments.devices;
  out.most_steps = arguments.most_steps;
  out.folder = folder;
  out.program = arguments.program;
  return out;
}

// What the emulated device has not, by what an error says of it, and what to do.
constexpr std::array<std::array<const char*, 3>, 6> kMissing{{
    {"InductorError", "Triton, which torch.compile compiles for",
     "TORCHDYNAMO_DISABLE=1 leaves it out"},
    {"triton", "Triton", "a script without kernels of its own can be rehearsed"},
    {"cudnn", "cuDNN", "torch's own kernels do the same where cuDNN is switched off"},
    {"cusolver", "cuSOLVER", "what calls it may run on the CPU"},
    {"cufft", "cuFFT", "what calls it may run on the CPU"},
    {"cusparse", "cuSPARSE", "what calls it may run on the CPU"},
}};

std::string missing_part(std::string error) {
  const auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
  std::ranges::transform(error, error.begin(), lower);
  for (const auto& [word, part, advice] : kMissing) {
    std::string sought = word;
    std::ranges::transform(sought, sought.begin(), lower);
    if (error.find(sought) != std::string::npos) {
      return std::string("; the emulated device has no ") + part + ": " + advice;
    }
  }
  return {};
}

// What a command that failed may have failed by.
std::string read_before(const RehearsedWay& as_is) {
  const std::string last = as_is.reported() ? text(as_is.worst(), "reads.last") : std::string();
  if (last.empty()) return {};
  return "; it reads values of the device, which mean nothing in a rehearsal, at " + last;
}

// Why there is no answer; empty where there is one.
std::string trouble(const RehearsedWay& way, const RehearsedWay& as_is) {
  const std::string end = way.signal != 0 ? "signal " + std::to_string(way.signal)
                                          : "exit code " + std::to_string(way.exit_code);
  for (const Json& report : way.ranks) {
    if (const std::string reason = text(report, "cannot"); !reason.empty()) {
      return "a rehearsal needs pudica in the command's own Python, and " + reason;
    }
  }
  if (!way.reported() && way.signal == SIGKILL) {
    return "the command was killed; the likely reason is that this machine's own memory, in which "
           "the emulated device's lies, was used up";
  }
  if (!way.reported()) {
    return "the command ended with " + end +
           " and trained no model by a torch.optim.Optimizer, uncompiled; nothing is known";
  }
  if (died_of_memory(way)) return {};
  const Json& report = way.worst();
  if (!way.done()) {
    const std::string error = text(report, "uncaught");
    const std::string part = missing_part(error);
    const bool tells = error.find("reads values of the device") != std::string::npos;
    return "the command failed in the rehearsal, behind step " +
           std::to_string(list(report, "steps").size()) + ", with " + end +
           (error.empty() ? std::string() : ": " + error) +
           (part.empty() && !tells ? read_before(as_is) : part);
  }
  if (!text(report, "device").starts_with("cuda")) {
    return "the script trained on '" + text(report, "device") +
           "'; expected a CUDA device: give it the option that it has for that";
  }
  return {};
}

Result<void> write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text << '\n' << std::flush;
  if (!file) return invalid_argument("cannot write " + path.string());
  return {};
}

struct Failure {
  int code;
  std::string why;  // empty where a signal ended it
};

// Where this run fails nothing is said of segments.
std::optional<Failure> try_other_segments(const Rehearsal& rehearsal, const Json& whole,
                                          RehearsedWays& ways) {
  if (spared_share(whole) <= kLittle) return std::nullopt;
  Rehearsal otherwise = rehearsal;
  const bool expands = is_true(whole, "expandable_segments");
  otherwise.segments = std::string("expandable_segments:") + (expands ? "False" : "True");
  const auto seen = run_rehearsal(otherwise, "as-is", kUnlimited, "");
  if (!seen) return std::nullopt;
  if (seen->stopped_by != 0) return Failure{kExitBySignal + seen->stopped_by, {}};
  ways.other_segments = *seen;
  return std::nullopt;
}

// The runs, each only where the ones before leave a question open.
std::optional<Failure> rehearse(const Rehearsal& rehearsal, RehearsedWays& ways) {
  const auto once = [&](const char* way, Bytes memory, const std::string& budget,
                        RehearsedWay& into) -> std::optional<Failure> {
    const auto seen = run_rehearsal(rehearsal, way, memory, budget);
    if (!seen) return Failure{kExitUsage, seen.error().message};
    into = *seen;
    if (into.stopped_by != 0) return Failure{kExitBySignal + into.stopped_by, {}};
    const std::string why = trouble(into, ways.as_is);
    return why.empty() ? std::nullopt : std::optional(Failure{kExitFailed, why});
  };
  if (auto failed = once("as-is", rehearsal.memory, "", ways.as_is)) return failed;
  const Json& seen = ways.as_is.worst();
  const bool caught = ways.as_is.done() && find(seen, "out_of_memory.step") != nullptr;
  const bool died = died_of_memory(ways.as_is);
  // One that catches the error may look for the largest batch by it: it would find no end.
  if (died || (!caught && integer(seen, "retries").value_or(0) > 0)) {
    ways.as_is_unlimited.emplace();
    if (auto failed = once("as-is", kUnlimited, "", *ways.as_is_unlimited)) return failed;
  }
  const Json& whole = (ways.as_is_unlimited ? *ways.as_is_unlimited : ways.as_is).worst();
  if (const auto failed = try_other_segments(rehearsal, whole, ways)) return failed;
  const auto written = write_file(rehearsal.folder + "/rooms.json",
                                  dump(rooms_of(rehearsal, whole, !died && !caught)));
  if (!written) return Failure{kExitFailed, written.error().message};
  if (auto failed = once("planned", rehearsal.memory, rehearsal.budget, ways.planned)) {
    return failed;
  }
  if (died_of_memory(ways.planned)) {
    const Bytes context{static_cast<std::int64_t>(rehearsal.card->context_bytes)};
    const Bytes budget = budget_bytes(rehearsal.budget, rehearsal.memory, context);
    ways.planned_unlimited.emplace();
    return once("planned", kUnlimited, std::to_string(budget.count()), *ways.planned_unlimited);
  }
  return std::nullopt;
}

// The answer, what was learned, and a configuration by which the real run starts from it.
Result<void> write_folder(const std::filesystem::path& folder, const RehearsedWays& ways,
                          Json& answer) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const auto whole = std::filesystem::absolute(folder, failed);
  const RehearsedWay& learned = ways.planned_unlimited ? *ways.planned_unlimited : ways.planned;
  const Json handles = learned.reported() ? list(learned.worst(), "handles") : Json::array();
  const Json* const state = handles.size() == 1 ? find(handles[0], "state") : nullptr;
  if (state != nullptr) {  // a state file is one model's
    const auto path = whole / "learned.json";
    if (auto done = write_file(path, dump(*state)); !done) return done;
    const Json config{{"state_file", path.string()}};
    if (auto done = write_file(whole / "pudica.json", dump_indented(config)); !done) return done;
    answer["learned"] = path.string();
  }
  std::ostringstream page;
  print_rehearsal(page, answer, Style{.width = kUnboundedWidth});
  if (auto done = write_file(whole / "answer.txt", page.str()); !done) return done;
  return write_file(whole / "answer.json", dump_indented(answer));
}

}  // namespace

int rehearse_command(Session& session) {
  const Arguments& arguments = session.arguments;
  const Scratch scratch;
  const auto rehearsal = settings_of(arguments, scratch.path());
  if (!rehearsal) return fail(session, rehearsal.error());
  session.err << std::flush;
  RehearsedWays ways;
  if (const auto failed = rehearse(*rehearsal, ways)) {
    if (failed->why.empty()) return failed->code;
    fail(session, invalid_argument(failed->why));
    return failed->code;
  }
  Json answer = rehearsal_answer(*rehearsal, ways);
  if (!arguments.out.empty()) {
    if (const auto done = write_folder(arguments.out, ways, answer); !done) {
      return fail(session, done.error().with_context("--out"));
    }
  }
  if (arguments.json) {
    print_json(session, answer);
  } else {
    print_rehearsal(session.out, answer, session.style);
  }
  const bool fits = is_true(answer, "fits_as_is") || is_true(answer, "fits_with_plan");
  return fits ? kExitDone : kExitNoPlanFits;
}

}  // namespace pudica::cli
