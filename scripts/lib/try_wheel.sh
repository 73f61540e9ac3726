#!/usr/bin/env bash
# try_wheel.sh WHEEL PYTHON FOLDER: installs the wheel into a new environment at FOLDER, without
# network, compiler or anything on the path but that environment, and trains a few steps there.
# PYTHON has torch; what is installed beside it is linked, not copied: gigabytes.
set -euo pipefail
wheel="$1" python="$2" folder="$3"

site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$python" -m venv "$folder"
theirs="$(site_of "$python")"
ours="$(site_of "$folder/bin/python")"
for entry in "$theirs"/*; do
  name="$(basename "$entry")"
  case "$name" in
    pip | pip-* | setuptools* | pkg_resources | _distutils_hack | distutils-* | pudica* | __pycache__) ;;
    *) ln -s "$entry" "$ours/$name" ;;
  esac
done
clean=(env -i "PATH=$folder/bin" "HOME=$folder" "PUDICA_SOCKET=$folder/no-daemon.sock")
cd "$folder"
"${clean[@]}" pip install --quiet --disable-pip-version-check --no-index --no-deps "$wheel"
"${clean[@]}" pip check --disable-pip-version-check >check.log || true
if grep -i '^pudica' check.log; then exit 1; fi  # of the others' wishes we know nothing
"${clean[@]}" python - <<'PY'
import torch
import pudica

model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
with pudica.attach(model, budget="1GiB", layers=[torch.nn.Linear], daemon=False) as handle:
    for length in (8, 24, 16):
        model(torch.randn(2, length, 64)).pow(2).mean().backward()
    stats = handle.stats()
assert stats["failures"] == 0 and stats["steps"] == 2, stats  # the last one is still open
PY
for program in pudica pudicad pudica-train; do
  "${clean[@]}" "$program" --version >/dev/null
done
