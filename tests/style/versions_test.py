"""The versions of torch that the texts name are those that the tests run with."""

import os
import pathlib
import re

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def pinned(requirements):
    return re.search(r"^torch==([\d.]+)$", text_of(requirements), re.MULTILINE)[1]


def minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


OLDEST, NEWEST = pinned("scripts/requirements.txt"), pinned("scripts/requirements-next.txt")
OLDEST_MINOR, NEWEST_MINOR = (".".join(v.split(".")[:2]) for v in (OLDEST, NEWEST))


def test_pyproject_allows_from_the_oldest_tested_to_the_newest():
    least, below = re.search(r'"torch>=([\d.]+),<([\d.]+)"', text_of("pyproject.toml")).groups()
    assert minor(least) == minor(OLDEST)
    major, newest = minor(NEWEST)
    assert minor(below) == (major, newest + 1)


def test_the_readme_names_both_and_no_other():
    limits = text_of("README.md").split("## Limits")[1].split("\n## ")[0]
    line = re.search(r"^\* Tested with torch (?:.|\n  )*", limits, re.MULTILINE)[0]
    assert re.findall(r"\d+\.\d+\.\d+", line) == [OLDEST, NEWEST]
    assert f"torch {OLDEST}" in text_of("README.md").split("## Start")[1].split("\n## ")[0]


def test_messages_name_the_same_range():
    named = f"{OLDEST_MINOR} to {NEWEST_MINOR}"
    for path in ("CMakeLists.txt", "cmake/dependencies.cmake", "scripts/lib/setup.sh"):
        assert named in text_of(path), path


def test_what_is_installed_carries_the_licences():
    assert 'license-files = ["LICENSE", "NOTICE"]' in text_of("pyproject.toml")
    copyright_line = "Copyright 2026 The pudica authors"
    assert copyright_line in text_of("NOTICE") and copyright_line in text_of("README.md")
    installed = re.search(r"install\(\s*FILES[^)]*/LICENSE[^)]*\)", text_of("cmake/install.cmake"))
    assert "/NOTICE" in installed[0]


def test_the_notice_names_every_library_that_is_compiled_in():
    notice = text_of("NOTICE")
    names = {"Eigen3": "Eigen", "spdlog": "spdlog", "fmt": "{fmt}", "CLI11": "CLI11",
             "nlohmann_json": "nlohmann/json", "SQLiteCpp": "SQLiteCpp", "httplib": "cpp-httplib"}
    files = [*ROOT.glob("cmake/*.cmake"), *ROOT.glob("src/*/CMakeLists.txt"),
             *ROOT.glob("predictor/CMakeLists.txt")]
    asked = set()
    for file in files:
        asked |= set(re.findall(r"(?:pudica_find|pkg_check_modules)\((\w+) ",
                                file.read_text(encoding="utf-8")))
    used = asked - {"GTest"}  # the tests' own; not installed
    assert used, "no library found in the CMake files"
    for library in used:
        assert library in names, f"{library}: not among the libraries of this test"
        assert names[library] in notice, library
    assert "Chart.js" in notice
