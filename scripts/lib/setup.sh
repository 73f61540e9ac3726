# Sourced by the scripts: makes sure that what the project needs is installed, quickly when it is.
# Provides PUDICA_PYTHON (a Python that has torch) and PUDICA_ROOT. Safe to repeat.

PUDICA_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

pudica_say() { printf 'pudica: %s\n' "$*" >&2; }
pudica_die() { pudica_say "$*"; exit 1; }

PUDICA_APT_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config git python3 python3-venv
  libeigen3-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev
  libcpp-httplib-dev libsqlitecpp-dev libjs-chart.js chromium libgtest-dev libgmock-dev
  coinor-cbc clang-format-14
)
PUDICA_APT_CHECK_PACKAGES=(clang-14 clang-tidy-14)

pudica_apt() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  pudica_say "installing Debian packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || pudica_die "need root or sudo to install: ${missing[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq \
    || pudica_die "apt-get update failed; see its message above"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null || pudica_die "could not install: ${missing[*]}"
}

# pudica_environment REQUIREMENTS REMARK: prints the folder of an environment that has what the file
# says, made once per user and keyed by the file's content.
pudica_environment() {
  local requirements="$1" remark="$2" key home
  key="$(sha256sum "$requirements" | cut -c1-12)"
  home="${XDG_CACHE_HOME:-$HOME/.cache}/pudica"
  local environment="$home/env-$key"
  if [ ! -e "$environment/.complete" ]; then
    pudica_say "making the Python environment $environment ($remark)"
    mkdir -p "$home"
    (
      flock 9
      if [ ! -e "$environment/.complete" ]; then
        rm -rf "$environment"
        python3 -m venv "$environment" >&2 || exit 1
        "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" >&2 || exit 1
        touch "$environment/.complete"
      fi
    ) 9>"$home/env-$key.lock" || pudica_die "could not make the Python environment; see the message above"
  fi
  echo "$environment"
}

# pudica_python [REQUIREMENTS]: a Python that has the required torch: PUDICA_PYTHON if the user
# names one, else an environment made once per user and keyed by the requirements file.
pudica_python() {
  if [ -n "${PUDICA_PYTHON:-}" ]; then
    "$PUDICA_PYTHON" -c 'import torch' 2>/dev/null \
      || pudica_die "PUDICA_PYTHON=$PUDICA_PYTHON cannot import torch (expected: a Python with torch, 2.11 to 2.15)"
    export PUDICA_PYTHON
    return 0
  fi
  local requirements="${1:-$PUDICA_ROOT/scripts/requirements.txt}" environment
  environment="$(pudica_environment "$requirements" "torch is a large download; minutes, once")" \
    || exit 1
  export PUDICA_PYTHON="$environment/bin/python"
  pudica_python_extras "$environment" "$requirements"
}

# What the Python package's tests need, added to our own environment; once for each list.
pudica_python_extras() {
  local environment="$1" requirements="$2" extras="$PUDICA_ROOT/scripts/requirements-python.txt" done_mark
  done_mark="$environment/.extras-$(sha256sum "$extras" | cut -c1-12)"
  [ ! -e "$done_mark" ] || return 0
  pudica_say "adding what the Python tests need (transformers, lightning; a minute, once)"
  (
    flock 9
    [ -e "$done_mark" ] && exit 0
    "$environment/bin/pip" install --quiet --disable-pip-version-check \
      -r "$requirements" -r "$extras" || exit 1
    touch "$done_mark"
  ) 9>"$environment.lock" || pudica_die "could not add them; see the message above"
}

pudica_setup() {
  pudica_apt "${PUDICA_APT_PACKAGES[@]}"
  pudica_python
}
