"""The layer table: a file includes only from rows above its own, and only the libraries it may."""

import posixpath
import re

# Folder -> row. A file belongs to the longest folder that holds it.
ROWS = {
    "include/pudica": 0,
    "src/base": 0,
    "emulated_device": 0,  # stands for CUDA, and uses nothing of ours but its kernels
    "predictor": 1,
    "plan_cache": 1,
    "src/planner": 1,
    "src/controller": 2,
    "src/config": 3,
    "src/inspect": 3,
    "src/policy": 3,
    "src/cuda": 4,
    "src/torch": 4,
    "src/daemon": 5,
    "src/cli": 5,
    "src/train": 5,
    "python": 5,
    "bench": 5,
    "examples": 5,
    "tests": 5,
}

# Public headers belong to the row of the module that they front; the others to row 0.
HEADER_ROWS = {
    "include/pudica/predictor.h": 1,
    "include/pudica/plan_cache.h": 1,
    "include/pudica/planner.h": 1,
    "include/pudica/peak_model.h": 1,
    "include/pudica/plan_builder.h": 1,
    "include/pudica/step_learner.h": 1,
    "include/pudica/controller.h": 2,
    "include/pudica/torch.h": 4,
}

# What a module shows to those above it, beside its headers in include/pudica; all else is private.
FACES = {
    "src/base": None,  # all of it
    "emulated_device": ("cards.h",),
    "plan_cache": ("plan_store.h", "region.h"),
    "src/config": ("config.h", "json_text.h"),
    "src/policy": ("policy_factory.h", "policy_spec.h"),
    "src/inspect": ("field_reader.h", "http_client.h", "json.h", "json_values.h",
                    "learned_shape.h", "model_view.h", "origin.h", "process_info.h",
                    "recomputation.h", "recording_policy.h", "reporting_policy.h",
                    "run_protocol.h", "socket_path.h", "socket_trust.h", "user_names.h"),
    "src/cuda": ("bits_kernels.cu",),
    # Of which src/cuda implements a part.
    "src/torch": ("bits.h", "cuda_part.h", "device_clock.h", "forward_account.h", "gap_habit.h",
                  "host_tier.h", "meter.h", "new_memory.h", "recorder.h"),
}
# Tests look inside; so do benchmarks.
LOOK_INSIDE = ("tests", "bench")

# Above the row alone: rows 4 differ in what they may use.
HIGHEST_ROW_USED = {"src/cuda": 2}
# Named exceptions: the CUDA meter implements the hook layer's meter, the emulated device runs our
# kernels from their source, and a benchmark may use what supports the tests.
ALSO_USES = {"src/cuda": ("src/torch/",), "emulated_device": ("src/cuda/bits_kernels.cu",),
             "bench": ("tests/support/",)}

# How a library shows in an include.
LIBRARIES = {
    "Eigen": r"Eigen/",
    "spdlog": r"spdlog/",
    "fmt": r"fmt/",
    "json": r"nlohmann/",
    "httplib": r"httplib\.h",
    "CLI11": r"CLI/",
    "SQLiteCpp": r"SQLiteCpp/",
    "torch": r"(torch|ATen|c10)/",
    "cuda": r"((cuda|cublas|nccl)[_.\w]*\.h|cub/|thrust/)",
    "sockets": r"(sys/socket|sys/un|netinet/\w+|arpa/inet|netdb)\.h",
    "systemd": r"systemd/",
}

# Folder -> libraries; a value that is a pattern of file names limits a library to those files.
ALLOWED = {
    "src/base": {"spdlog": r"log\.cpp", "fmt": r"log\.cpp"},
    "predictor": {"Eigen": None},
    "src/policy": {"Eigen": r"quadratic_fit\.cpp"},
    "emulated_device": {"cuda": None, "torch": r"torch_changes\.cpp"},
    "src/config": {"json": None},
    # http_bounded_client.h derives from the library's client: for http_client.cpp alone.
    "src/inspect": {"json": None, "httplib": r"http_\w+\.cpp|http_bounded_client\.h",
                    "sockets": r"http_\w+\.cpp|socket_trust\.cpp"},
    "src/cuda": {"torch": None, "cuda": None},
    "src/torch": {"torch": None},
    "src/daemon": {"CLI11": None, "SQLiteCpp": r"store\w*\.cpp", "json": None, "sockets": None,
                   "httplib": r"http_\w+\.(h|cpp)"},
    # fmt stands in for std::format; the doctor asks a socket who listens on it.
    "src/cli": {"CLI11": None, "json": None, "fmt": None, "sockets": r"socket_probe\.cpp"},
}
ALLOWED_BY_FILE = {"include/pudica/torch.h": {"torch": None}}
EVERYTHING = ("src/train", "python", "bench", "examples", "tests")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CLOCK = re.compile(r"\b(system_clock|steady_clock|high_resolution_clock|clock_gettime)\b")


def folder_of(path):
    """The folder of the table that holds the file; None outside of it."""
    holding = [folder for folder in ROWS if path.startswith(folder + "/")]
    return max(holding, key=len, default=None)


def row_of(path):
    return HEADER_ROWS.get(path, ROWS[folder_of(path)])


def resolve(including, included, known):
    """The file of the project that a quoted include means; None if it is not ours."""
    for base in ("include", "src", "", "tests", posixpath.dirname(including)):
        candidate = posixpath.normpath(posixpath.join(base, included))
        if candidate in known:
            return candidate
    return None


def is_private(including, included):
    """Whether the header is one that its module keeps to itself."""
    mine, theirs = folder_of(including), folder_of(included)
    if theirs in (None, mine, "include/pudica", "tests") or mine in LOOK_INSIDE:
        return False
    shown = FACES.get(theirs, ())
    return shown is not None and included[len(theirs) + 1:] not in shown


def may_include(including, included):
    mine, theirs = folder_of(including), folder_of(included)
    if theirs is None or (mine == theirs and mine != "include/pudica"):
        return True
    if any(included.startswith(folder) for folder in ALSO_USES.get(mine, ())):
        return True
    if theirs == "tests":
        return mine == "tests"
    row = row_of(including)
    if row == 5:
        return True
    limit = HIGHEST_ROW_USED.get(mine, row - 1)
    if row_of(included) <= limit:
        return True
    # A module includes the header that fronts it, and values of row 0 may include each other.
    return theirs == "include/pudica" and row_of(included) == row


def library_findings(path, line_number, included):
    folder = folder_of(path)
    if folder in EVERYTHING:
        return []
    allowed = ALLOWED_BY_FILE.get(path, ALLOWED.get(folder, {}))
    findings = []
    for library, pattern in LIBRARIES.items():
        if not re.match(pattern, included):
            continue
        files = allowed.get(library, "") if library in allowed else ""
        if files is None or (files and re.fullmatch(files, posixpath.basename(path))):
            continue
        findings.append(f"{path}:{line_number}: layers: {folder} may not use {library} "
                        f"({included})")
    return findings


def layers(files):
    known = {file.path for file in files}
    findings = []
    for file in files:
        if not file.path.endswith((".h", ".cpp", ".cu")) or folder_of(file.path) is None:
            continue
        for number, line in enumerate(file.text.splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                findings.extend(library_findings(file.path, number, match[2]))
                target = resolve(file.path, match[2], known) if match[1] == '"' else None
                if target and not may_include(file.path, target):
                    findings.append(f"{file.path}:{number}: layers: {target} (row "
                                    f"{row_of(target)}) is not above row {row_of(file.path)}")
                elif target and is_private(file.path, target):
                    findings.append(f"{file.path}:{number}: layers: {target} is private to "
                                    f"{folder_of(target)}: see FACES in scripts/lib/tidy_layers.py")
            elif row_of(file.path) <= 2 and CLOCK.search(line.split("//")[0]):
                findings.append(f"{file.path}:{number}: layers: rows 0-2 have no clock")
    return findings
