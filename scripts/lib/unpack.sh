# Sourced by scripts/test and scripts/check, after setup.sh: what tests use where it is there, without
# installing it. Unpacked into the user's cache; no service comes with it. Where something cannot be
# had the script says so and goes on, and the tests that want it skip.

PUDICA_AXE=axe-4.12.1
PUDICA_AXE_REQUIREMENTS="$PUDICA_ROOT/scripts/requirements-axe.txt"

# pudica_unpack NAME COMMAND...: the folder NAME of the cache, made once: COMMAND runs in it. Status
# 1 where it fails; nothing is left then.
pudica_unpack() {
  local home="${XDG_CACHE_HOME:-$HOME/.cache}/pudica" name="$1"
  shift
  local folder="$home/$name"
  [ ! -e "$folder/.complete" ] || return 0
  mkdir -p "$home"
  (
    flock 9
    [ ! -e "$folder/.complete" ] || exit 0
    rm -rf "$folder"
    mkdir "$folder"
    (cd "$folder" && "$@") >&2 && touch "$folder/.complete" && exit 0
    rm -rf "$folder"
    exit 1
  ) 9>"$folder.lock"
}

# The package depends on a server that would be started; one file of it is wanted.
pudica_fetch_promtool() {
  apt-get download -qq prometheus || return 1
  dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool || return 1
  rm -f prometheus_*.deb
}

# zsh and fish with the files that they load, which are found from where the programs stand or told.
pudica_fetch_shells() {
  local package
  apt-get download -qq zsh zsh-common fish fish-common libpcre2-32-0 || return 1
  for package in *.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --exclude=./usr/share/doc || return 1
    rm -f "$package"
  done
  mkdir -p usr/etc/fish  # without it fish looks in /usr
}

# axe-core comes in a Python package, of which only the file is wanted.
pudica_fetch_axe() {
  "$PUDICA_PYTHON" -m pip download --quiet --disable-pip-version-check --retries 1 --no-deps \
    --require-hashes -r "$PUDICA_AXE_REQUIREMENTS" || return 1
  python3 -m zipfile -e ./*.whl . || return 1
  rm -f ./*.whl
}

pudica_test_programs() {
  command -v promtool >/dev/null || pudica_unpack promtool pudica_fetch_promtool \
    || pudica_say "no promtool: the tests of the alert rules do less (Debian package prometheus)"
  { command -v zsh && command -v fish; } >/dev/null || pudica_unpack shells pudica_fetch_shells \
    || pudica_say "no zsh or fish: the tests of their completion skip (Debian packages zsh, fish)"
  pudica_unpack "$PUDICA_AXE" pudica_fetch_axe \
    || pudica_say "no axe-core: one browser test skips (PyPI package axe-playwright-python)"
}
