"""scripts/bench --stale lists results that are not true of the code, and no others; the page of
this tree's results shows what the files hold."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "scripts/lib"))

import bench_code  # noqa: E402
import bench_manifest  # noqa: E402
import bench_page  # noqa: E402
import bench_renew  # noqa: E402
import bench_stale  # noqa: E402

COMMAND = "scripts/bench toy"
MANIFEST = {"sources": {"all": ["src", "@more"], "more": ["bench/toy_bench.cpp"]},
            "results": {"toy": {"command": COMMAND, "minutes": 1, "sources": ["@all"],
                                "about": "a toy", "cases": "."}}}


class Project:
    """A repository with one result, made at its first commit."""

    def __init__(self, root):
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("bench/manifest.json", json.dumps(MANIFEST))
        self.write("src/a.cpp", 'int a() { return 1; }  // one\nconst char* b = "// no";\n')
        self.write("bench/toy_bench.cpp", "int main() {}\n")
        self.write("docs/other.md", "nothing\n")
        (root / "bench/results").mkdir()
        self.commit()
        self.result = {
            "revision": self.git("rev-parse", "HEAD"), "modified": False, "command": COMMAND,
            "seed": 1, "environment": {},
            "machine": {"cpu": "c", "cores": 2, "memory_bytes": 3, "instruction_set": "avx2"},
            "versions": {"compiler": "g++", "torch": None, "python": None},
            "cases": [{"name": "x", "unit": "us", "calls": 100, "median": 1, "p99": 2,
                       "quartiles": [1, 2]}]}
        self.put()

    def git(self, *arguments):
        own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *own, *arguments], cwd=self.root, text=True, check=True,
                              capture_output=True).stdout.strip()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "work")

    def put(self, **changes):
        self.write("bench/results/toy.json", json.dumps({**self.result, **changes}))
        self.commit()

    def stale(self):
        return [line for _, line in bench_stale.stale(self.root)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path)


def test_a_result_of_the_code_as_it_is_is_not_listed(project, capsys):
    assert bench_stale.main(project.root) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", ["src/a.cpp", "src/new.cpp", "bench/toy_bench.cpp"])
def test_code_that_has_changed_is_named(project, path, capsys):
    project.write(path, "int a() { return 2; }\n")
    project.commit()
    assert bench_stale.main(project.root) == 1
    line = capsys.readouterr().out.strip()
    assert line.startswith("bench/results/toy.json: since ") and line.endswith(path)


def test_comments_and_what_it_does_not_speak_of_may_change(project):
    project.write("src/a.cpp", '/* anew */ int a() { return 1; }\n\nconst char* b = "// no";\n')
    project.write("src/README.md", "words\n")
    project.write("docs/other.md", "something\n")
    project.commit()
    assert project.stale() == []


def test_what_looks_like_a_comment_in_a_literal_is_code(project):
    project.write("src/a.cpp", 'int a() { return 1; }  // one\nconst char* b = "// yes";\n')
    project.commit()
    assert len(project.stale()) == 1


def test_a_revision_that_nobody_has_is_unknown(project):
    project.put(revision="0" * 40)
    assert "history of this branch does not hold" in project.stale()[0]


def test_a_revision_of_another_branch_is_unknown(project):
    project.git("checkout", "--quiet", "-b", "other")
    project.write("docs/other.md", "elsewhere\n")
    project.commit()
    elsewhere = project.git("rev-parse", "HEAD")
    project.git("checkout", "--quiet", "main")
    project.put(revision=elsewhere)
    assert "history of this branch does not hold" in project.stale()[0]


def test_a_changed_tree_is_no_revision(project):
    project.put(modified=True)
    assert "made from a changed tree" in project.stale()[0]


@pytest.mark.parametrize("key", ["revision", "modified", "command", "seed", "machine", "versions",
                                 "environment"])
def test_a_missing_key_is_named(project, key):
    del project.result[key]
    project.put()
    assert f"lacks {key}" in project.stale()[0]


@pytest.mark.parametrize("changes, named", [
    ({"machine": {"cpu": "c", "cores": 2, "memory_bytes": 3}}, "machine.instruction_set"),
    ({"versions": {"compiler": "g++", "torch": None}}, "versions.python"),
    ({"cases": [{"name": "x", "median": 1}]}, "a spread"),
    ({"command": "scripts/bench toy --calls 3"}, "the manifest says 'scripts/bench toy'"),
    ({"cases": [{"name": "x", "calls": 25, "p99": 2, "quartiles": [1, 2]}]}, "p99 of 25 values"),
])
def test_what_is_wrong_in_a_result_is_named(project, changes, named):
    project.put(**changes)
    assert named in project.stale()[0]


def test_results_and_the_manifest_match(project):
    project.write("bench/results/extra.json", "{}")
    (project.root / "bench/results/toy.json").unlink()
    lines = project.stale()
    assert "toy.json: not there" in lines[0]
    assert lines[1] == "bench/results/extra.json: not in bench/manifest.json"


def test_a_file_that_is_no_json_is_said_to_be_none(project):
    project.write("bench/results/toy.json", "{")
    assert "cannot be read" in project.stale()[0]


def test_an_exported_tree_cannot_tell(project, tmp_path_factory, capsys):
    exported = tmp_path_factory.mktemp("exported") / "tree"
    shutil.copytree(project.root, exported, ignore=shutil.ignore_patterns(".git"))
    assert bench_stale.main(exported) == 2
    assert "no git repository" in capsys.readouterr().err


def test_an_exported_tree_inside_of_a_repository_cannot_tell(project, capsys):
    inner = project.root / "inner"
    shutil.copytree(project.root, inner, ignore=shutil.ignore_patterns(".git", "inner"))
    assert bench_stale.main(inner) == 2
    assert "part of another repository" in capsys.readouterr().err


def test_a_shallow_clone_cannot_tell_what_is_older(project, tmp_path_factory, capsys):
    shallow = tmp_path_factory.mktemp("clone") / "shallow"
    project.git("clone", "--quiet", "--depth", "1", f"file://{project.root}", str(shallow))
    assert bench_stale.main(shallow) == 2
    assert "git fetch --unshallow" in capsys.readouterr().err


@pytest.mark.parametrize("before, after, same", [
    ("int a = 1;  // x\n", "int a = 1;\n", True),
    ("a /* x\n y */ b\n", "a  b\n", False),  # white space within a line counts: rather too often
    ('R"(// x)"', 'R"(// y)"', False),
    ("'\"' // \" x\n", "'\"' // \" y\n", True),
    ("1'000'000 // x", "1'000'000", True),
    ("int a;\n\n\nint b;\n", "int a;\nint b;\n", True),
    ('"a\\n\\\n  b"', '"a\\n\\\n b"', False),
])
def test_what_of_a_source_is_code(before, after, same):
    assert bench_code.same_code("x.cpp", before, after) == same


def test_code_of_python_and_of_other_files():
    assert bench_code.same_code("x.py", "a = 1  # x\n", "a = 1\n\n")
    assert not bench_code.same_code("x.py", "a = 1\n", "a = 2\n")
    assert not bench_code.same_code("x.json", "1\n", "1 \n")


def test_renewing_takes_the_command_of_the_manifest(project, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["renew", "--root", str(project.root), "--build",
                                      str(tmp_path)])
    project.write("scripts/bench", "")
    (project.root / "scripts/bench").chmod(0o755)
    project.write("src/a.cpp", "int a() { return 3; }\n")
    project.commit()
    project.result["revision"] = project.git("rev-parse", "HEAD")
    project.write("scripts/bench", "#!/bin/sh\n"
                  f"echo '{json.dumps({**project.result, 'command': 'another'})}' > \"$3\"\n")
    with pytest.raises(SystemExit, match="commit first"):
        bench_renew.main()
    project.commit()
    assert len(project.stale()) == 1
    assert bench_renew.main() == 0
    project.commit()
    assert project.stale() == []
    assert "| x | 1 us (1 to 2) | 2 | 100 |" in (
        project.root / "bench/results/README.md").read_text()


def test_a_command_that_fails_leaves_the_result_alone(project, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["renew", "toy", "--root", str(project.root), "--build",
                                      str(tmp_path)])
    project.write("scripts/bench", "#!/bin/sh\nexit 3\n")
    (project.root / "scripts/bench").chmod(0o755)
    project.commit()
    before = (project.root / "bench/results/toy.json").read_text()
    assert bench_renew.main() == 1
    assert "exit 3" in capsys.readouterr().err
    assert (project.root / "bench/results/toy.json").read_text() == before


def test_what_needs_a_card_is_not_renewed_here(project, monkeypatch, capsys):
    manifest = json.loads(json.dumps(MANIFEST))
    manifest["results"]["toy"]["needs_card"] = True
    project.write("bench/manifest.json", json.dumps(manifest))
    project.write("src/a.cpp", "int a() { return 2; }\n")
    project.commit()
    assert [kept.name for kept, _ in bench_stale.stale(project.root)] == ["toy"]
    assert bench_renew.chosen(project.root, []) == []
    with pytest.raises(SystemExit, match="'toy' needs a CUDA device: scripts/bench toy --help"):
        bench_renew.chosen(project.root, ["toy"])


def test_this_tree_s_manifest_names_code_and_commands_that_are_there():
    for kept in bench_manifest.load(ROOT):
        for path in kept.sources:
            assert (ROOT / path).exists(), f"{kept.name}: {path}"
        program = kept.command.split()[0]
        assert program == "pudica-train" or (ROOT / program).is_file(), kept.command
        assert "--json" not in kept.command and "--out" not in kept.command


def test_this_tree_s_page_shows_what_the_files_hold():
    assert (ROOT / "bench/results/README.md").read_text() == bench_page.page(ROOT), (
        "scripts/bench --page writes it anew")
    front = (ROOT / "README.md").read_text()
    assert front == bench_page.readme(ROOT, front), "scripts/bench --page writes it anew"
