#!/usr/bin/env bash
# One of the checks that take seconds, on the whole tree: format, style or types. Nothing is
# installed or built. Exit code 77 (CTest: skipped) where the tool it needs is missing, as in an
# environment of the user's own.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
python="${PUDICA_PYTHON:-python3}"

skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

cd "$root"
case "${1:-}" in
  format)
    command -v clang-format-14 >/dev/null || skip "no clang-format-14"
    [ -e .git ] || skip "$root is not a checkout"
    git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' \
      | { while IFS= read -r -d '' name; do [ ! -f "$name" ] || printf '%s\0' "$name"; done; } \
      | xargs -0 --no-run-if-empty clang-format-14 --dry-run -Werror
    ;;
  style) python3 scripts/tidy.py ;;
  types)
    "$python" -c 'import importlib.util as u; assert u.find_spec("mypy") and u.find_spec("torch")' \
      2>/dev/null || skip "$python has no mypy, or no torch"
    # What pyproject.toml names, strictly.
    "$python" -m mypy --cache-dir .cache/mypy
    ;;
  *)
    echo "quick_check.sh: '${1:-}': expected format, style or types" >&2
    exit 2
    ;;
esac
