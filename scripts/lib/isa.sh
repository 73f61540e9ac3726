# Sourced by scripts/check: the instruction sets that ATen and oneDNN can be held to.
PUDICA_ISA_SETTINGS=(
  ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ATEN_CPU_CAPABILITY=avx512
  ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=AVX512_CORE ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
)

# pudica_isa_missing CPUINFO SETTING: the flags that the setting takes and the processor, described
# by the file (as /proc/cpuinfo), has not; nothing where it has them all.
pudica_isa_missing() {
  local needed=() flags flag missing=()
  case "$2" in
    *=default) ;;
    *=avx2 | *=AVX2) needed=(avx2 fma) ;;
    *=avx512 | *=AVX512_CORE) needed=(fma avx512f avx512bw avx512dq avx512vl) ;;
    *=AVX512_CORE_BF16) needed=(fma avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16) ;;
  esac
  flags=" $(sed -n 's,^flags[^:]*:,,p;T;q' "$1") "
  for flag in "${needed[@]}"; do
    [[ "$flags" == *" $flag "* ]] || missing+=("$flag")
  done
  echo "${missing[*]}"
}
