"""What scripts/wheel does to a wheel after the build: which torch it is for shows in its version
and in what it requires, and nothing else changes."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import os
import pathlib
import sys
import zipfile

import pytest

SOURCE = pathlib.Path(os.environ["PUDICA_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "scripts" / "lib"))

import label_wheel  # noqa: E402  (found through the line above)

METADATA = """Metadata-Version: 2.4
Name: pudica
Version: 0.1.0
Requires-Dist: torch<2.16,>=2.11
Requires-Dist: torchmetrics; extra == "test"
Requires-Dist: torch-geometric>=2
Provides-Extra: test

Version: 0.1.0 is named in the text, and
Requires-Dist: torch>=2 as well.
"""


def make_wheel(folder, metadata=METADATA, build='TORCH_VERSION = "2.15.0+cu130"\n'):
    path = folder / "pudica-0.1.0-py3-none-linux_x86_64.whl"
    files = {
        "pudica/__init__.py": "",
        "pudica/_build.py": build,
        "pudica/bin/tool": "#!/bin/sh\n",
        "pudica-0.1.0.dist-info/METADATA": metadata,
        "pudica-0.1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\n"
                                        "Root-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
        "pudica-0.1.0.dist-info/licenses/LICENSE": "licence\n",
        "pudica-0.1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if "/bin/" in name else 0o100644) << 16
            archive.writestr(entry, text)
    return path


@pytest.fixture(name="labelled")
def labelled_wheel(tmp_path):
    target = tmp_path / "out"
    target.mkdir()
    return label_wheel.label(make_wheel(tmp_path), target)


def test_its_name_says_for_which_torch(labelled):
    assert labelled.name == "pudica-0.1.0+torch2.15-py3-none-linux_x86_64.whl"


def test_it_requires_that_torch_alone(labelled):
    with zipfile.ZipFile(labelled) as archive:
        text = archive.read("pudica-0.1.0+torch2.15.dist-info/METADATA").decode()
    head, body = text.split("\n\n", 1)
    assert "Version: 0.1.0+torch2.15" in head.split("\n")
    required = [line for line in head.split("\n") if line.startswith("Requires-Dist")]
    assert required == ["Requires-Dist: torch>=2.15,<2.16",
                        'Requires-Dist: torchmetrics; extra == "test"',
                        "Requires-Dist: torch-geometric>=2"]
    assert body == METADATA.split("\n\n", 1)[1]


def test_every_file_is_recorded_and_keeps_its_mode(labelled):
    with zipfile.ZipFile(labelled) as archive:
        rows = list(csv.reader(io.StringIO(
            archive.read("pudica-0.1.0+torch2.15.dist-info/RECORD").decode())))
        assert sorted(row[0] for row in rows) == sorted(archive.namelist())
        for path, digest, size in rows[:-1]:
            content = archive.read(path)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
            assert (digest, size) == ("sha256=" + expected.rstrip("="), str(len(content)))
        assert rows[-1] == ["pudica-0.1.0+torch2.15.dist-info/RECORD", "", ""]
        assert archive.getinfo("pudica/bin/tool").external_attr >> 16 == 0o100755


def test_its_version_is_read_where_it_is_installed(labelled, tmp_path):
    with zipfile.ZipFile(labelled) as archive:
        archive.extractall(tmp_path / "site")
    (found,) = importlib.metadata.distributions(path=[str(tmp_path / "site")])
    assert found.version == "0.1.0+torch2.15"
    assert found.requires[0] == "torch>=2.15,<2.16"


@pytest.mark.parametrize("change, message", [
    ({"build": "# empty\n"}, "no TORCH_VERSION"),
    ({"metadata": METADATA.replace("torch<2.16,>=2.11", "numpy")}, "requires torch 0 times"),
])
def test_a_wheel_that_is_not_ours_is_refused(change, message, tmp_path):
    with pytest.raises(label_wheel.WheelError, match=message):
        label_wheel.label(make_wheel(tmp_path, **change), tmp_path)


def test_libraries_that_were_brought_are_known_by_their_names():
    files = ["pudica/lib/libpudica_torch.so", "pudica.libs/libspdlog-5e4b9b31.so.1.10.0",
             "pudica.libs/libcpp-httplib-0a1b2c3d.so.0.11.4"]
    assert label_wheel.brought_libraries(files) == [
        "libcpp-httplib.so.0.11.4", "libspdlog.so.1.10.0"]


def test_licences_come_from_the_packages(tmp_path, monkeypatch):
    program = tmp_path / "dpkg-query"
    program.write_text('#!/bin/sh\ncase "$2" in */libgood.so.1) '
                       'echo "libgood1:amd64: /usr/lib/libgood.so.1" ;; *) exit 1 ;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(label_wheel, "DOCUMENTS", tmp_path / "doc")
    (tmp_path / "doc" / "libgood1").mkdir(parents=True)
    (tmp_path / "doc" / "libgood1" / "copyright").write_text("as is\n")
    assert label_wheel.licences_of(["libgood.so.1"]) == {"third_party/libgood1": b"as is\n"}
    with pytest.raises(label_wheel.WheelError, match="libother.so.2"):
        label_wheel.licences_of(["libother.so.2"])
