"""Makes a wheel say for which torch it is, in its version and in what it requires, and puts the
licences of the libraries that it brings into it.

    label_wheel.py WHEEL FOLDER     prints the new wheel's path
"""

import base64
import csv
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import zipfile

DOCUMENTS = pathlib.Path("/usr/share/doc")


class WheelError(Exception):
    """A wheel that is not as our build makes them."""


def built_for(files):
    """The minor version of the torch that the native library was built against, from the wheel."""
    text = files.get("pudica/_build.py", b"").decode()
    found = re.search(r'TORCH_VERSION = "(\d+\.\d+)', text)
    if found is None:
        raise WheelError("pudica/_build.py: no TORCH_VERSION, expected one such as 2.11.0")
    return found[1]


def next_minor(minor):
    major, number = minor.split(".")
    return f"{major}.{int(number) + 1}"


def labelled_metadata(text, version, minor, licences):
    """METADATA with another version, the requirement of this torch alone, and license files."""
    head, blank, body = text.partition("\n\n")
    lines, required = [], 0
    for line in head.split("\n"):
        if line.startswith("Version: "):
            line = f"Version: {version}"
        elif re.match(r"Requires-Dist: torch\b(?!-)[^;]*$", line):
            line, required = f"Requires-Dist: torch>={minor},<{next_minor(minor)}", required + 1
        lines.append(line)
    if required != 1:
        raise WheelError(f"METADATA requires torch {required} times, expected once")
    lines += [f"License-File: {name}" for name in licences]
    return "\n".join(lines) + blank + body


def record(files, own_path):
    """RECORD: each file's hash and size; its own line has neither."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(content)])
    writer.writerow([own_path, "", ""])
    return out.getvalue().encode()


def brought_libraries(files):
    """The names of the system's libraries that were copied into the wheel, as they were before:
    a hash follows the first part of each."""
    found = [re.fullmatch(r"pudica\.libs/(.+)-[0-9a-f]{8}(\.so.*)", path) for path in files]
    return sorted(match[1] + match[2] for match in found if match)


def licences_of(libraries):
    """{file name: text} for each Debian package that one of the libraries is from."""
    licences = {}
    for library in libraries:
        done = subprocess.run(["dpkg-query", "--search", f"*/{library}"], capture_output=True,
                              text=True, check=False)
        package = done.stdout.split(":")[0].split(",")[0].strip()
        path = DOCUMENTS / package / "copyright"
        if done.returncode != 0 or not path.is_file():
            raise WheelError(f"{library}: no Debian package with a copyright file has it")
        licences[f"third_party/{package}"] = path.read_bytes()
    return licences


def label(wheel, folder):
    """Writes the labelled wheel into the folder; its path."""
    name, version, tags = wheel.name.removesuffix(".whl").split("-", 2)
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry for entry in archive.infolist() if not entry.is_dir()}
        files = {path: archive.read(path) for path in entries}
    minor = built_for(files)
    licences = licences_of(brought_libraries(files))
    new_version = f"{version}+torch{minor}"
    old_info, new_info = (f"{name}-{v}.dist-info" for v in (version, new_version))
    labelled, modes = {}, {}
    for path, content in files.items():
        if path == f"{old_info}/RECORD":
            continue
        if path == f"{old_info}/METADATA":
            content = labelled_metadata(content.decode(), new_version, minor, licences).encode()
        new_path = re.sub(rf"^{re.escape(name)}-{re.escape(version)}\.(?=(dist-info|data)/)",
                          f"{name}-{new_version}.", path)
        labelled[new_path] = content
        modes[new_path] = entries[path].external_attr
    for licence, content in licences.items():
        labelled[f"{new_info}/licenses/{licence}"] = content
    labelled[f"{new_info}/RECORD"] = record(labelled, f"{new_info}/RECORD")
    target = folder / f"{name}-{new_version}-{tags}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in labelled.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = modes.get(path, 0o100644 << 16)
            archive.writestr(entry, content)
    return target


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        print(label(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    except WheelError as error:
        sys.exit(f"label_wheel.py: {sys.argv[1]}: {error}")


if __name__ == "__main__":
    main()
