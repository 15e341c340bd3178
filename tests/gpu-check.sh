#!/usr/bin/env bash
# The checks of a GPU, from programs that are built already: `tests/gpu-check.sh FOLDER [MINUTES]`. Needs bash, the folder and a driver; no Rust,
# no network. `./build.sh gpu-check` builds the folder and starts this.
#
# The most important first. What does not fit the time is named, and the script then ends with 3; with 1 when something failed.
set -euo pipefail

folder=$(realpath "$1")
deadline=$((SECONDS + ${2:-6} * 60))
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)}
failed=()
late=()

# `check LABEL PROGRAM ARGUMENTS...`
check() {
  local label=$1 program=$2 start=$SECONDS left=$((deadline - SECONDS)) code=0
  shift 2
  if [[ ! -x $folder/$program ]]; then
    failed+=("$label (there is no $folder/$program)")
    return
  fi
  if [[ $left -le 0 ]]; then
    late+=("$label")
    return
  fi
  printf '\n== %s\n' "$label"
  timeout "$left" "$folder/$program" "$@" || code=$?
  printf -- '-- %s: %d s\n' "$label" $((SECONDS - start))
  case $code in
    0) ;;
    124) late+=("$label") ;;
    *) failed+=("$label") ;;
  esac
}

full_size() { check "full size: $1" full_size --ignored --nocapture --test-threads 1 --exact "$1"; }

check "kernels against their CPU twins" kernels --nocapture
full_size text_encoder
full_size unet_16x16
full_size vae_16x16
check "bench" bench --rounds 3 --json "$folder/bench.json"
full_size unet_64x64
full_size vae_64x64_exact
full_size vae_64x64_float16
full_size vae_64x64_blended

printf '\n== %d s\n' "$SECONDS"
for label in "${late[@]}"; do printf 'not done in time: %s\n' "$label"; done
for label in "${failed[@]}"; do printf 'failed: %s\n' "$label"; done
if [[ ${#failed[@]} -gt 0 ]]; then exit 1; fi
if [[ ${#late[@]} -gt 0 ]]; then exit 3; fi
echo "all checks passed"
