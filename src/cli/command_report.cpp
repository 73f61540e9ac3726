// `pudica report`: a run, or a record of one, as a page.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>

#include "cli/commands.h"
#include "cli/record_reader.h"
#include "cli/run_report.h"

namespace pudica::cli {
namespace {

// A name with a slash or of an existing file is a file; what is neither is a run.
bool is_file(const std::string& name) {
  std::error_code ignored;
  return name.find('/') != std::string::npos || std::filesystem::exists(name, ignored);
}

Result<RunReport> of_file(Session& session, const std::string& path) {
  auto reader = RecordReader::open(path);
  if (!reader) return reader.error();
  RunReport report;
  for (;;) {
    const auto record = reader->next();
    if (!record) return record.error();
    if (!*record) break;
    report.add(**record);
  }
  if (reader->truncated()) {
    session.err << "pudica: the last line of " << sanitised(path, session.error_style)
                << " was cut off; it is left out\n";
  }
  if (report.steps() == 0) return invalid_argument(path + " holds no step record");
  report.set_source("From the step records of " + std::filesystem::path(path).filename().string() +
                    ".");
  return report;
}

Result<RunReport> of_run(Session& session, const std::string& name) {
  const auto id = session.daemon.run_id(name);
  if (!id) return id.error();
  const auto run = session.daemon.get(run_target(*id));
  if (!run) return run.error();
  const auto plans = session.daemon.get(run_target(*id, "/plans"));
  if (!plans) return plans.error();
  return RunReport::of_run(*run, *plans);
}

// Whole or not at all: written beside and renamed.
Result<void> write(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  const auto failed = [&](const std::string& why) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    return Error{ErrorCode::kCorrupt, "cannot write --out " + path + ": " + why};
  };
  {
    std::ofstream file(beside, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) return failed(std::strerror(errno));
  }
  std::error_code error;
  std::filesystem::rename(beside, path, error);
  if (error) return failed(error.message());
  return {};
}

}  // namespace

int report_command(Session& session) {
  const Arguments& arguments = session.arguments;
  const auto report =
      is_file(arguments.run) ? of_file(session, arguments.run) : of_run(session, arguments.run);
  if (!report) return fail(session, report.error());
  const std::string out = arguments.out.empty() ? "pudica-report.html" : arguments.out;
  const auto written = write(out, report->html());
  if (!written) return fail(session, written.error());
  if (arguments.json) {
    return print_json(session, {{"out", valid_utf8(out)}, {"steps", report->steps()}});
  }
  session.out << sanitised(out, session.style) << '\n';
  return kExitDone;
}

}  // namespace pudica::cli
