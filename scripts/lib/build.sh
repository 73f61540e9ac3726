# Sourced by the scripts after setup.sh: configuring, building and reading options.

# Compiling against LibTorch takes up to 2 GB a file: no more jobs than the memory bears.
pudica_jobs() {
  local cores available_kib by_memory
  cores="$(nproc)"
  available_kib="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  by_memory=$(( available_kib / (2 * 1024 * 1024) ))
  [ "$by_memory" -ge 1 ] || by_memory=1
  echo $(( cores < by_memory ? cores : by_memory ))
}

# The preset that scripts build: PUDICA_PRESET, else `core` where PUDICA_TORCH=OFF, else `release`.
pudica_preset() {
  if [ -n "${PUDICA_PRESET:-}" ]; then
    echo "$PUDICA_PRESET"
  elif [ "${PUDICA_TORCH:-ON}" = OFF ]; then
    echo core
  else
    echo release
  fi
}

# pudica_configure PRESET [cmake arguments...]; quiet unless it fails.
pudica_configure() {
  local preset="$1" log
  shift
  log="$(mktemp)"
  if ! (cd "$PUDICA_ROOT" && cmake --preset "$preset" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    pudica_die "cmake --preset $preset failed; its output is above"
  fi
  rm -f "$log"
}

# pudica_build PRESET [targets...]; without targets: all.
pudica_build() {
  local preset="$1"
  shift
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  (cd "$PUDICA_ROOT" && cmake --build --preset "$preset" -j "$(pudica_jobs)" "${targets[@]}") >&2 \
    || pudica_die "the build of preset $preset failed; its output is above"
}

# pudica_usage_error MESSAGE: to be followed by nothing; exit code 2.
pudica_usage_error() {
  printf '%s: %s (see --help)\n' "$(basename "$0")" "$*" >&2
  exit 2
}

# pudica_report_failures PRESET: what the failed tests of the last ctest run printed, the end of
# each, and "N passed, N failed".
pudica_report_failures() {
  local logs="$PUDICA_ROOT/build/$1/Testing/Temporary" run failed
  [ -s "$logs/LastTestsFailed.log" ] || return 0
  run="$(grep -cE '^[0-9]+/[0-9]+ Test: ' "$logs/LastTest.log")"
  failed="$(wc -l <"$logs/LastTestsFailed.log")"
  cut -d: -f2- "$logs/LastTestsFailed.log" | while read -r name; do
    printf '\n== %s failed; the end of what it printed:\n' "$name"
    awk -v name="$name" '
      / Test: / { ours = substr($0, index($0, " Test: ") + 7) == name }
      /^<end of output>$/ { ours = 0 }
      ours && $0 != "Output:" && !/^-+$/' "$logs/LastTest.log" | tail -n 60
  done
  printf '\n%d passed, %d failed\n' "$((run - failed))" "$failed"
}
