#include "cli/options.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/row_format.h"
#include "cli/usage_error.h"
#include "inspect/run_protocol.h"

namespace pudica::cli {
namespace {

constexpr const char* kExits =
    "Exit codes: 0 done, 1 failed, 2 usage or bad input, 3 daemon unreachable.";

constexpr const char* kCards = "T4 V100 V100-32 RTX4090 A100-40 A100-80 H100 H200";

// Declares commands on one app. Lives no longer than the arguments that it writes to.
class Declaration {
 public:
  explicit Declaration(Arguments& arguments)
      : arguments_(arguments),
        app_(std::make_unique<CLI::App>(
            "Shows and steers the training processes that have registered with pudicad.",
            "pudica")) {
    app_->require_subcommand(0, 1);
    app_->fallthrough();
    app_->footer(std::string("`pudica COMMAND --help` tells more of each.\n\n") + kExits);
    app_->add_option("--socket", arguments.socket,
                     "the daemon's socket; default: PUDICA_SOCKET, else "
                     "$XDG_RUNTIME_DIR/pudica/pudicad.sock")
        ->type_name("PATH");
    app_->add_flag("--json", arguments.json, "print JSON");
    app_->add_flag("--no-color", arguments.no_color, "no colours, as with NO_COLOR set");
    app_->add_flag("--no-trunc", arguments.no_trunc, "cut nothing, however wide a table becomes");
    app_->add_option("--timeout", arguments.timeout_seconds,
                     "seconds to wait for the daemon's answer; default: 1.5 until it shows that it "
                     "lives, then 30")
        ->check(CLI::Range(0.01, 3600.0))
        ->type_name("SECONDS");
    app_->add_flag("--version", version_, "print the version");
    declare_runs();
    declare_steering();
    declare_prune();
    declare_offline();
    declare_rehearse();
    declare_rest();
  }

  CLI::App& app() { return *app_; }
  [[nodiscard]] bool version() const { return version_; }

 private:
  CLI::App* command(const char* name, const char* what, const std::string& examples) {
    CLI::App* const sub = app_->add_subcommand(name, what);
    sub->fallthrough();
    sub->footer("Examples:\n" + examples + "\n" + kExits);
    return sub;
  }
  void run_argument(CLI::App* sub) {
    sub->add_option("RUN", arguments_.run, "a run's id or name; default: the only run")
        ->type_name("");
  }
  void shape_argument(CLI::App* sub) {
    sub->add_option("SHAPE", arguments_.shape, "12x384 or batch=12,source=384")
        ->required()
        ->type_name("");
  }
  void format_option(CLI::App* sub, const char* example) {
    sub->add_option("--format", arguments_.format,
                    std::string("one line each, of fields of --json, such as '") + example + "'")
        ->check([](const std::string& given) {
          const auto format = RowFormat::parse(given);
          return format ? std::string() : format.error().message;
        })
        ->type_name("TEXT");
  }
  void budget_option(CLI::App* sub, const char* what) {
    sub->add_option("--budget", arguments_.budget, what)->type_name("BYTES");
  }
  void config_option(CLI::App* sub) {
    sub->add_option("--config", arguments_.config, "configuration file; default: PUDICA_CONFIG")
        ->type_name("FILE");
  }

  void declare_runs() {
    auto* sub = command("status", "Runs with budget, peak and pace",
                        "  pudica status\n"
                        "  pudica status train          one run in full, with its budget changes\n"
                        "  pudica status --all --json   ended runs too, as {\"runs\":[...]}\n"
                        "  pudica status --format '{name}\\t{peak_bytes}\\t{last.seconds}'\n");
    run_argument(sub);
    format_option(sub, "{name}\\t{peak_bytes}");
    sub->add_flag("--all", arguments_.all, "ended runs too");

    sub = command("plans", "The plans that a run holds, by shape",
                  "  pudica plans\n  pudica plans train --json\n"
                  "  pudica plans train --format '{key} {measured_peak_bytes}'\n");
    run_argument(sub);
    format_option(sub, "{key}\\t{plan.modes}");

    sub = command("explain", "The plan of a shape, layer by layer, and why",
                  "  pudica explain 12x384\n"
                  "  pudica explain batch=12,source=384 train --budget 600MiB\n");
    shape_argument(sub);
    run_argument(sub);
    budget_option(sub, "plan under this budget instead of the run's own");

    sub = command("estimate", "What a shape would need, and the frontier of memory and time",
                  "  pudica estimate 16x512\n"
                  "  pudica estimate 16x512 train --budget 6GiB\n");
    shape_argument(sub);
    run_argument(sub);
    budget_option(sub, "plan under this budget instead of the run's own");

    sub = command("models", "Learned models, by fingerprint, or forget one",
                  "  pudica models\n  pudica models rm 3f9a81c2\n");
    sub->require_subcommand(0, 1);
    format_option(sub, "{fingerprint}\\t{bytes}");
    auto* remove = sub->add_subcommand("rm", "Forget what was learned of a model");
    remove->fallthrough();
    remove->footer(std::string("Examples:\n  pudica models rm 3f9a81c2\n\n"
                               "A live run of the model teaches it anew.\n\n") +
                   kExits);
    remove->add_option("FINGERPRINT", arguments_.fingerprint, "the model's, or how it begins")
        ->required()
        ->type_name("");

    sub = command("top", "Runs, live",
                  "  pudica top                  q or Ctrl-C leaves\n"
                  "  pudica top --once\n"
                  "  pudica top --interval 5 | tee log\n");
    sub->add_flag("--once", arguments_.once, "print once and end");
    sub->add_option("--interval", arguments_.interval_seconds, "seconds between updates")
        ->check(CLI::Range(0.1, 3600.0))
        ->type_name("SECONDS");
  }

  void declare_steering() {
    auto* sub = command("budget", "Set a run's budget, from its next step on",
                        "  pudica budget train 18GiB\n"
                        "  pudica budget train 16GiB --dry-run\n"
                        "  pudica budget train -2GiB --dry-run     what with 2 GiB less?\n"
                        "  pudica budget k3v9q2 629145600 --no-wait\n");
    sub->add_option("RUN", arguments_.run, "a run's id or name")->required()->type_name("");
    sub->add_option("BYTES", arguments_.budget,
                    "600MiB, 1.5GB or an integer; with + or - so much more or less than now")
        ->required()
        ->type_name("");
    sub->add_option("--wait", arguments_.wait_seconds,
                    "seconds to wait for the first step under it; default: 30")
        ->check(CLI::Range(0.0, 86400.0))
        ->type_name("SECONDS");
    sub->add_flag_callback(
        "--no-wait", [this] { arguments_.wait_seconds = 0; }, "do not wait for the step");
    sub->add_flag("--dry-run", arguments_.dry_run, "tell what it would cost, change nothing");

    sub = command("group", "Budget groups: show them, or set a group's total",
                  "  pudica group                 all groups\n"
                  "  pudica group gpu0            one group with its runs\n"
                  "  pudica group gpu0 40GiB      set what its runs share\n");
    sub->add_option("NAME", arguments_.group, "the group")->type_name("");
    sub->add_option("BYTES", arguments_.budget, "what its runs share")->type_name("");
    format_option(sub, "{name}\\t{assigned_bytes}");
  }

  void declare_prune() {
    auto* sub = command("prune", "Remove ended runs from the daemon's database",
                        "  pudica prune --days 30        what ended 30 days ago or earlier\n"
                        "  pudica prune --days 0         all ended runs\n");
    sub->add_option("--days", arguments_.days, "how long ago a run ended at least")
        ->required()
        ->check(CLI::Range(0, 36500))
        ->type_name("N");
  }

  void declare_offline() {
    auto* sub =
        command("replay", "What recorded steps would have been under another policy or budget",
                "  pudica replay run.jsonl\n"
                "  pudica replay run.jsonl --policy none,mimose,pudica --budget 6GiB\n"
                "  pudica replay run.jsonl --budget 0.4 --steps --json\n");
    sub->add_option("FILE", arguments_.file, "step records (pudica-train --record)")
        ->required()
        ->type_name("");
    sub->add_option("--policy", arguments_.policy, "policies with commas between; default: pudica")
        ->type_name("LIST");
    budget_option(sub,
                  "bytes, or a fraction with a point between recomputing all and keeping all; "
                  "default: as recorded");
    sub->add_option("--device", arguments_.device, "cpu or cuda: where it was recorded")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->type_name("NAME");
    config_option(sub);
    sub->add_flag("--steps", arguments_.steps, "every step too");

    sub = command("report", "One page of HTML about a run, that needs nothing else",
                  "  pudica report train --out report.html\n"
                  "  pudica report run.jsonl --out report.html\n");
    sub->add_option("RUN|FILE", arguments_.run,
                    "a run's id or name, or a file of step records; default: the only run")
        ->type_name("");
    sub->add_option("--out", arguments_.out, "the page; default: pudica-report.html")
        ->type_name("FILE");
  }

  void declare_rehearse() {
    auto* sub = command("rehearse", "Whether a training command fits a card, without the card",
                        "  pudica rehearse --device H100 -- python train.py\n"
                        "  pudica rehearse --memory 24GiB --steps 200 --json -- python train.py\n"
                        "\nThe script runs on an emulated device, as it is and planned: what it "
                        "prints goes to standard error,\nwhat it writes it writes. Exit code 4: no "
                        "plan fits.\n");
    sub->add_option("--device", arguments_.card,
                    "T4, V100, V100-32, RTX4090, A100-40, A100-80 (default), H100 or H200")
        ->type_name("CARD");
    sub->add_option("--memory", arguments_.memory, "memory of the device instead of the card's")
        ->type_name("BYTES");
    sub->add_option("--devices", arguments_.devices, "how many there are, for torchrun; default: 1")
        ->check(CLI::Range(1, 16))
        ->type_name("N");
    budget_option(sub,
                  "the plan's budget: bytes, auto (default) or a fraction: 0.0 recomputes\n"
                  "every layer of the longest batch, 1.0 keeps them");
    sub->add_option("--steps", arguments_.most_steps,
                    "optimizer steps to rehearse, 0: until the script ends; default: 50")
        ->check(CLI::Range(0, 1000000000))
        ->type_name("N");
    sub->add_option("--out", arguments_.out,
                    "a folder for the answer and for the learned state of the real run")
        ->type_name("PATH");
  }

  void declare_rest() {
    auto* sub = command("config", "Check a configuration file, or show what is in effect",
                        "  pudica config check pudica.json\n  pudica config show\n");
    sub->require_subcommand(1, 1);
    auto* check = sub->add_subcommand("check", "Report every error of a configuration file");
    check->fallthrough();
    check->footer(std::string("Examples:\n  pudica config check pudica.json\n\n") + kExits);
    check->add_option("FILE", arguments_.file, "the file")->required()->type_name("");
    auto* show = sub->add_subcommand("show", "Every value and where it comes from");
    show->fallthrough();
    show->footer(std::string("Examples:\n  pudica config show --config pudica.json\n\n") + kExits);
    config_option(show);

    sub = command("doctor", "Say why nothing is registered",
                  "  pudica doctor\n  pudica doctor --socket /run/pudica/pudicad.sock --json\n");
    config_option(sub);

    sub = command("run", "Start a training command with pudica's environment",
                  "  pudica run -- python train.py\n"
                  "  pudica run --budget 18GiB --config pudica.json -- pudica-train --daemon\n"
                  "\nThe exit code is the command's own; 2 where it cannot be started.\n");
    budget_option(sub,
                  "PUDICA_BUDGET of the command: bytes, auto or a fraction: 0.0 recomputes\n"
                  "every layer of the longest batch, 1.0 keeps them");
    config_option(sub);

    sub = command("completion", "Print a completion script for a shell",
                  "  source <(pudica completion bash)\n"
                  "  pudica completion zsh > \"${fpath[1]}/_pudica\"\n"
                  "  pudica completion fish > ~/.config/fish/completions/pudica.fish\n");
    sub->add_option("SHELL", arguments_.shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->type_name("");
  }

  Arguments& arguments_;
  bool version_ = false;
  std::unique_ptr<CLI::App> app_;
};

// "check or show".
std::string one_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 < names.size() ? ", " : " or ";
    out += names[i];
  }
  return out;
}

// What follows the first "--" is not ours to read.
std::vector<std::string> cut_program(std::vector<std::string>& arguments) {
  const auto mark = std::ranges::find(arguments, "--");
  if (mark == arguments.end()) return {};
  std::vector<std::string> program(mark + 1, arguments.end());
  arguments.erase(mark, arguments.end());
  return program;
}

// "help COMMAND" is "COMMAND --help".
void turn_help_around(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "help") return;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
}

CommandWords words_of(CLI::App& app) {
  CommandWords words;
  words.name = app.get_name();
  words.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      words.positionals.push_back(option->get_name(true));
      continue;
    }
    const std::string type = option->get_type_name();
    const std::string description = option->get_description();
    std::string choices;
    if (option->get_name() == "--device") choices = type == "CARD" ? kCards : "cpu cuda";
    words.options.push_back({option->get_name(), description, option->get_expected_max() > 0,
                             type == "FILE" || type == "PATH", choices});
  }
  words.subcommands = names_of(app);
  return words;
}

}  // namespace

Result<CommandLine> parse_command_line(const std::vector<std::string>& given) {
  CommandLine line;
  Declaration declaration(line.arguments);
  CLI::App& app = declaration.app();
  std::vector<std::string> arguments = given;
  const bool marked = std::ranges::find(arguments, "--") != arguments.end();
  line.arguments.program = cut_program(arguments);
  turn_help_around(arguments);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    if (chosen(app).empty() && !arguments.front().starts_with("-")) {
      return usage_error(app, arguments, "no command is called '" + arguments.front() + "'");
    }
    line.print = app.help();
    return line;
  } catch (const CLI::RequiredError& error) {
    const auto path = chosen(app);
    const std::vector<std::string> inner =
        path.empty() ? std::vector<std::string>() : names_of(*path.back());
    if (inner.empty()) return usage_error(app, arguments, error.what());
    return usage_error(app, arguments, one_of(inner) + " is missing");
  } catch (const CLI::ParseError& error) {
    return usage_error(app, arguments, error.what());
  }
  if (declaration.version()) {
    line.print = "pudica " PUDICA_VERSION ", protocol " + std::to_string(kProtocol) + "\n";
    return line;
  }
  const auto path = chosen(app);
  if (path.empty()) {
    if (arguments.empty()) {
      line.print = app.help();
      return line;
    }
    return usage_error(app, arguments, "a command is missing");
  }
  for (const CLI::App* sub : path) {
    line.arguments.command += (line.arguments.command.empty() ? "" : " ") + sub->get_name();
  }
  if (line.arguments.json && !line.arguments.format.empty()) {
    return usage_error(app, arguments, "--json and --format exclude each other");
  }
  const bool runs = line.arguments.command == "run" || line.arguments.command == "rehearse";
  if (runs && line.arguments.program.empty()) {
    return usage_error(app, arguments, "expected -- and the command to start");
  }
  if (!runs && marked)
    return usage_error(app, arguments, "'--' seen; only `pudica run` and `rehearse` take it");
  return line;
}

std::vector<CommandWords> command_words() {
  Arguments arguments;
  Declaration declaration(arguments);
  std::vector<CommandWords> all{words_of(declaration.app())};
  for (CLI::App* const sub : declaration.app().get_subcommands({})) {
    all.push_back(words_of(*sub));
    for (CLI::App* const inner : sub->get_subcommands({})) {
      CommandWords words = words_of(*inner);
      words.name = sub->get_name() + " " + words.name;
      all.push_back(std::move(words));
    }
  }
  return all;
}

}  // namespace pudica::cli
