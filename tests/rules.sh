#!/usr/bin/env bash
# The rules that no compiler checks: who may import whom, how long a file may be, what a file may not name.
# Prints every breach and fails if there was one. Looks at tracked files only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

LINES_LIMIT=500
breaches=0

# `forbid REASON PATTERN PATHSPEC...`: no tracked text file in the paths may match the extended regular expression.
forbid() {
  local reason=$1 pattern=$2 found
  shift 2
  # git grep exits with 1 where it finds nothing, and with more where it cannot search.
  found=$(git grep -nIE -e "$pattern" -- "$@") || [[ $? -eq 1 ]]
  [[ -z $found ]] && return
  printf 'rule broken: %s\n%s\n' "$reason" "$found"
  breaches=$((breaches + 1))
}

# The plan engine talks to WebGPU itself, in one folder: wgpu's way to it panics where a page must not.
forbid "the browser's crates appear only in crate/src/web, the plan engine's gpu/web, the tokenizer's unicode and weights-loader's browser sources" \
  '(wasm_bindgen|web_sys|js_sys)(::|_futures)' \
  'crate/src/*.rs' 'weights-loader/src/*.rs' ':!crate/src/web/*' ':!crate/src/web.rs' ':!weights-loader/src/source/*' \
  ':!crate/src/engine/plan/gpu/web/*' ':!crate/src/engine/plan/gpu/web.rs' ':!crate/src/tokenizer/unicode/web.rs'
forbid "models do not know schedulers" '(crate|super)::(\{.*)?schedulers' 'crate/src/models/*'
forbid "schedulers do not know models" '(crate|super)::(\{.*)?models' 'crate/src/schedulers/*'
forbid "only web and pipeline know the pipeline" '(crate|super)::(\{.*)?pipeline' \
  'crate/src/*' ':!crate/src/web*' ':!crate/src/pipeline*' ':!crate/src/lib.rs'
forbid "nothing but web itself knows web" '(crate|super)::(\{.*)?web\b' 'crate/src/*' ':!crate/src/web*' ':!crate/src/lib.rs'
forbid "schedulers are pure numbers and know no engine" '(crate|super)::(\{.*)?engine|\bburn::' 'crate/src/schedulers/*'
forbid "burn is named only in its engine" '\bburn::' 'crate/src/*.rs' ':!crate/src/engine/*' ':!crate/src/web/*'
forbid "weights-loader knows no model, no burn, no GPU" '\b(burn|wgpu|latent_canvas)::' 'weights-loader/src/*'
forbid "no file names a path of one machine" '(^|[^A-Za-z0-9_.~/-])/(work|root|home|Users)/' ':!*.lock'
forbid "errors in the libraries are typed" '\banyhow\b' 'crate/*' 'weights-loader/*'

while read -r file; do
  printf 'rule broken: a module named utils or helpers says nothing: %s\n' "$file"
  breaches=$((breaches + 1))
done < <(git ls-files | grep -E '(^|/)(utils?|helpers?)(\.[a-z]+$|/)' || true)

while read -r lines file; do
  if [[ $lines -gt $LINES_LIMIT ]]; then
    printf 'rule broken: %s has %d lines, the limit is %d\n' "$file" "$lines" "$LINES_LIMIT"
    breaches=$((breaches + 1))
  fi
done < <(git ls-files '*.rs' '*.js' '*.mjs' '*.py' '*.wgsl' '*.sh' '*.css' '*.html' |
  while read -r file; do printf '%d %s\n' "$(wc -l <"$file")" "$file"; done)

if [[ $(grep -c '^name = "wasm-bindgen"$' Cargo.lock) -ne 1 ]]; then
  printf 'rule broken: Cargo.lock must hold exactly one version of wasm-bindgen\n'
  breaches=$((breaches + 1))
fi

while read -r manifest; do
  if ! (cd "$(dirname "$manifest")" &&
    sed -n 's/.*"path": "\(.*\)", "length": .* "sha256": "\(.*\)".*/\2  \1/p' manifest.json | sha256sum --check --quiet); then
    printf 'rule broken: %s does not describe its files; run ./build.sh manifest %s\n' "$manifest" "$(dirname "$manifest")"
    breaches=$((breaches + 1))
  fi
done < <(git ls-files 'www/models/*/manifest.json')

if [[ $breaches -gt 0 ]]; then
  printf '%d rules broken\n' "$breaches"
  exit 1
fi
echo "all rules hold"
