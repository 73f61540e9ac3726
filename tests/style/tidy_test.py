"""Each rule of scripts/tidy.py finds what it is for, and nothing in code that is right."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts"))

import tidy  # noqa: E402


@pytest.fixture
def tree(tmp_path):
    """Writes files given as {path: text} and returns what tidy finds in them."""

    def check(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tidy.check(tmp_path)

    return check


def header(includes=""):
    return f"// What it is for.\n#pragma once\n{includes}"


def named(*sources):
    return f"add_library(x STATIC {' '.join(sources)})\n"


def test_clean_tree_has_no_findings(tree):
    assert tree({
        "include/pudica/bytes.h": header("#include <cstdint>\n"),
        "CMakeLists.txt": named("include/pudica/bytes.h"),
        "src/planner/CMakeLists.txt": named("table.cpp"),
        "src/planner/table.cpp": '#include "pudica/bytes.h"\n\nint cells() { return 4; }\n',
    }) == []


@pytest.mark.parametrize("path, include, allowed", [
    ("predictor/fit.h", "<Eigen/Dense>", True),
    ("src/planner/fit.h", "<Eigen/Dense>", False),
    ("src/config/read.h", "<nlohmann/json.hpp>", True),
    ("src/controller/read.h", "<nlohmann/json.hpp>", False),
    ("src/base/check.h", "<spdlog/spdlog.h>", False),
    ("src/torch/hooks.h", "<ATen/ATen.h>", True),
    ("src/policy/static.h", "<c10/core/Device.h>", False),
    ("src/train/main.h", "<torch/torch.h>", True),
    ("src/inspect/service.h", "<httplib.h>", False),
    ("src/controller/net.h", "<sys/socket.h>", False),
    ("src/controller/net.h", "<sys/mman.h>", True),
])
def test_libraries_by_layer(tree, path, include, allowed):
    findings = tree({path: header(f"#include {include}\n")})
    assert [f"{path}:3: layers" in finding for finding in findings] == ([] if allowed else [True])


@pytest.mark.parametrize("path, target, allowed", [
    ("src/controller/phase.h", "plan_cache/region.h", True),
    ("src/controller/phase.h", "include/pudica/step_learner.h", True),
    ("predictor/fit.h", "plan_cache/lru.h", False),
    ("src/planner/table.h", "src/controller/phase.h", False),
    ("src/planner/table.h", "src/planner/cells.h", True),
    ("src/config/config.h", "src/policy/static.h", False),
    ("src/torch/hooks.h", "src/policy/policy_spec.h", True),
    ("src/cuda/probe.h", "src/policy/static.h", False),
    ("src/train/job.h", "include/pudica/torch.h", True),
    ("src/base/check.h", "include/pudica/bytes.h", True),
    ("src/base/check.h", "include/pudica/planner.h", False),
    ("predictor/fit.h", "include/pudica/predictor.h", True),
    ("src/train/job.h", "tests/support/traces.h", False),
    ("bench/plan.h", "tests/support/traces.h", True),
    ("bench/plan.h", "tests/planner/chains.h", False),
    ("src/cuda/meter.h", "src/torch/meter.h", True),
])
def test_includes_by_layer(tree, path, target, allowed):
    included = target.removeprefix("include/").removeprefix("src/").removeprefix("tests/")
    findings = tree({path: header(f'#include "{included}"\n'), target: header(),
                     "CMakeLists.txt": named(path, target)})
    assert [f"{path}:3: layers" in finding for finding in findings] == ([] if allowed else [True])


@pytest.mark.parametrize("path, target, allowed", [
    ("src/controller/phase.h", "predictor/step/store.h", False),
    ("src/policy/oracle.h", "src/controller/phase.h", False),
    ("src/train/job.h", "src/torch/hooks.h", False),
    ("python/native/handle.h", "src/torch/hooks.h", False),
    ("src/train/job.h", "src/policy/policy_spec.h", True),
    ("src/daemon/api.h", "src/base/log.h", True),
    ("src/cuda/meter.h", "src/torch/meter.h", True),
    ("src/cuda/meter.h", "src/torch/hooks.h", False),
    ("src/controller/phase.h", "src/controller/margin.h", True),
    ("tests/predictor/store.h", "predictor/step/store.h", True),
    ("bench/plan.h", "src/planner/table.h", True),
])
def test_headers_that_a_module_keeps_to_itself(tree, path, target, allowed):
    included = target.removeprefix("src/")
    findings = tree({path: header(f'#include "{included}"\n'), target: header(),
                     "CMakeLists.txt": named(path, target)})
    assert ["is private to" in finding for finding in findings] == ([] if allowed else [True])


def test_core_has_no_clock(tree):
    line = "const auto now = std::chrono::steady_clock::now();\n"
    assert len(tree({"src/planner/t.h": header(line), "src/torch/t.h": header(line),
                     "src/base/t.h": header("// no steady_clock here\n")})) == 1


def test_long_files_lines_and_functions(tree):
    body = "  call();\n" * 69
    findings = tree({
        "CMakeLists.txt": named("src/a.cpp", "src/b.cpp", "src/c.cpp", "src/d.cpp"),
        "src/a.cpp": "// x\n" * 401,
        "src/b.cpp": f"// {'x' * 98}\n",
        "src/c.cpp": "namespace a {\n// why\nint f(int x) {\n" + body + "}\n}  // namespace a\n",
        "src/d.cpp": "namespace a {\nint f(int x) {\n  call();\n}\n}  // namespace a\n",
    })
    assert findings == ["src/a.cpp:1: lengths: 401 lines, at most 400",
                        "src/b.cpp:1: lengths: 101 columns, at most 100",
                        "src/c.cpp:3: lengths: a function of 71 lines, at most 70"]


def test_long_methods_in_classes_and_long_tests_are_found(tree):
    body = "  call();\n" * 80
    findings = tree({
        "CMakeLists.txt": named("a.cpp"),
        "a.cpp": "class A {\n public:\n  void f() const {\n" + body + "  }\n"
                 "  int g() { return 1; }\n};\nTEST(A, B) {\n" + body + "}\n",
    })
    assert [finding.split(":")[1] for finding in findings] == ["3", "87"]


def test_braces_in_text_and_lists_do_not_confuse_lengths(tree):
    lists = "constexpr int kA[] = {\n" + "  f(1),\n" * 90 + "};\n"
    text = 'const char* kB = "{";\nint f() { return \'{\'; }\n' + "int g();\n" * 90 + "// }\n"
    assert tree({"CMakeLists.txt": named("a.cpp", "b.cpp"), "a.cpp": lists, "b.cpp": text}) == []


def test_long_python_function(tree):
    findings = tree({"scripts/a.py": "def f():\n" + "    pass\n" * 70})
    assert findings == ["scripts/a.py:1: lengths: a function of 71 lines, at most 70"]


def test_non_ascii_in_code_but_not_in_documents(tree):
    assert tree({"scripts/a.py": "# \u2014\n", "docs/a.md": "\u2014\n"}) == [
        "scripts/a.py:1: ascii: '\u2014'"]


def test_printing_outside_programs(tree):
    line = 'void f() { std::cout << 1; }\n'
    findings = tree({
        "CMakeLists.txt": named("src/train/a.cpp", "src/base/b.cpp", "tests/c.cpp",
                                "src/base/d.cpp"),
        "src/train/a.cpp": line, "src/base/b.cpp": line, "tests/c.cpp": line,
        "src/base/d.cpp": '// std::cout\nint n = std::snprintf(a, 1, "std::cout");\n',
    })
    assert findings == ["src/base/b.cpp:1: printing: libraries never print"]


def test_sleeps_in_tests(tree):
    findings = tree({
        "CMakeLists.txt": named("tests/b.cpp", "src/base/c.cpp"),
        "tests/a.py": "import time\n\ntime.sleep(1)\n",
        "tests/support/waiting.py": "time.sleep(1)\n",
        "python/tests/d.py": "asleep(1)\nkept_time.sleeper(1)\n", "bench/e.py": "time.sleep(1)\n",
        "tests/b.cpp": "void f() {\n  std::this_thread::sleep_for(x);\n  ::usleep(3);\n}\n",
        "src/base/c.cpp": "void f() { ::usleep(3); }\n",
    })
    assert findings == [f"{place}: sleeps: tests wait for what happens"
                        for place in ("tests/a.py:3", "tests/b.cpp:2", "tests/b.cpp:3")]


def test_leftovers(tree):
    assert tree({"scripts/a.py": "# TODO later\n", "scripts/b.py": "TODOS = 1\n"}) == [
        "scripts/a.py:1: leftovers: TODO"]


def test_machine_paths_everywhere(tree):
    findings = tree({"docs/a.md": "see /home/me/x\n",
                     "docs/b.md": "a/home/b $HOME/root/c ~/work/d\n"})
    assert findings == ["docs/a.md:1: machine path: /home/me"]


def test_headers_begin_with_a_comment_and_a_guard(tree):
    assert len(tree({"src/base/a.h": "int f();\n"})) == 2


def test_sources_that_only_a_comment_names(tree):
    findings = tree({
        "tests/a/CMakeLists.txt": "# b_test.cpp is to come\nadd_executable(a a_test.cpp)\n",
        "tests/a/a_test.cpp": "", "tests/a/b_test.cpp": "", "tests/a/c_test.py": "",
    })
    assert findings == ["tests/a/b_test.cpp:1: unnamed: no CMakeLists names this file",
                        "tests/a/c_test.py:1: unnamed: no CMakeLists names this file"]


def test_a_name_in_another_folder_does_not_count(tree):
    findings = tree({"tests/a/CMakeLists.txt": named("x_test.cpp"), "tests/b/x_test.cpp": "",
                     "tests/a/x_test.cpp": ""})
    assert findings == ["tests/b/x_test.cpp:1: unnamed: no CMakeLists names this file"]


def test_config_keys_must_agree(tree):
    findings = tree({
        "configs/default.json": '{"a": {"b": 1}, "c": 2}',
        "configs/pudica.schema.json": '{"properties": {"a": {"properties": {"b": {}}}, "d": {}}}',
        "docs/configuration.md": "| `a.b` | x |\n| `c` | x |\n",
    })
    assert findings == ["configs/pudica.schema.json:1: config keys: c is missing",
                        "configs/pudica.schema.json:1: config keys: d is not in "
                        "configs/default.json"]


def test_private_header_that_does_not_compile_alone(tmp_path):
    (tmp_path / "src/base").mkdir(parents=True)
    (tmp_path / "src/base/good.h").write_text(header("#include <string>\nstd::string f();\n"))
    (tmp_path / "src/base/bad.h").write_text(header("std::string f();\n"))
    findings = tidy.compile_headers(tmp_path)
    assert len(findings) == 1 and findings[0].startswith("src/base/bad.h:1: does not compile alone")
