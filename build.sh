#!/usr/bin/env bash
# Builds, serves, tests and checks latent-canvas. `./build.sh help` lists the commands.
# Each command installs only what it needs and is missing, and says what it installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# --- tool versions: pinned here and nowhere else ------------------------------------------------
RUST_MINIMUM=1.95.0
RUST_TARGET=wasm32-unknown-unknown
# From here on Node reads a .js file with imports as a module without being told.
NODE_MINIMUM=20.19.0
# The command line tool refuses a module of another version, so Cargo.lock decides.
WASM_BINDGEN_VERSION=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)
WASM_PACK_VERSION=0.15.1
NPM_PACKAGES=(binaryen@132.0.0 playwright-core@1.65.1 sirv@3.0.2)
# What the bench compares with, in tests/bench/node_modules.
ONNXRUNTIME_VERSION=1.30.0
# Chromium, its driver and Mesa's Vulkan come from Debian, which keeps one version of each.
# Everything else Python needs is pinned in tests/golden/requirements.txt.
GOLDEN_VENV=.tools/golden
# Written by `golden --full`: a model in its real size, 2 GB.
FULL_SIZE_MODEL=.tools/full-size/sd15

# --- where things are ---------------------------------------------------------------------------
TARGET_DIR=${CARGO_TARGET_DIR:-target}
PKG_DIR=www/pkg
# NAME=FEATURES=PROFILE: www/pkg/NAME is the module built with FEATURES in that profile. A page fetches the one that it needs.
WASM_MODULES=(cpu=burn=release webgpu=plan=small burn=burn-wgpu=release)
# Most bytes of the webgpu module with gzip: what a visitor waits for before a plan is told.
WEBGPU_MODULE_LIMIT=400000
WASM_OPT=(--enable-simd --enable-bulk-memory --enable-nontrapping-float-to-int --enable-sign-ext
  --enable-mutable-globals --enable-reference-types --enable-multivalue)
# What the native tests need: the CPU engine, the plan engine, the commands.
NATIVE_FEATURES=latent-canvas-tests/burn,latent-canvas-tests/plan,latent-canvas/cli
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

say() { printf '\n== %s\n' "$*"; }
die() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

# Runs a command and prints how long it took: `timed LABEL COMMAND...`.
timed() {
  local label=$1 start=$SECONDS
  shift
  say "$label"
  "$@"
  printf -- '-- %s: %d s\n' "$label" $((SECONDS - start))
}

# --- tools --------------------------------------------------------------------------------------
version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

need_rust() {
  command -v cargo >/dev/null && command -v rustc >/dev/null ||
    die "Rust is missing. Install it with rustup: https://rustup.rs"
  local version
  version=$(rustc --version | cut -d' ' -f2)
  version_at_least "$version" "$RUST_MINIMUM" ||
    die "Rust $version is too old, $RUST_MINIMUM is needed. Run: rustup update stable"
}

need_rust_target() {
  need_rust
  [[ -d $(rustc --print sysroot)/lib/rustlib/$RUST_TARGET ]] && return
  command -v rustup >/dev/null ||
    die "the Rust target $RUST_TARGET is missing and there is no rustup to add it. Install rustup: https://rustup.rs"
  say "installing the Rust target $RUST_TARGET"
  rustup target add "$RUST_TARGET"
}

need_rust_components() {
  need_rust
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
  say "installing rustfmt and clippy"
  rustup component add rustfmt clippy
}

need_node() {
  command -v node >/dev/null && command -v npm >/dev/null ||
    die "Node is missing. Install version $NODE_MINIMUM or newer: https://nodejs.org"
  local version
  version=$(node --version)
  version_at_least "${version#v}" "$NODE_MINIMUM" ||
    die "Node $version is too old, $NODE_MINIMUM is needed. Install a newer one: https://nodejs.org"
}

# `need_cargo_tool CRATE BINARY VERSION`
need_cargo_tool() {
  need_rust
  local crate=$1 binary=$2 version=$3
  [[ $("$binary" --version 2>/dev/null | cut -d' ' -f2 || true) == "$version" ]] && return
  say "installing $crate $version with cargo"
  # A build folder of its own: cargo's default would be ours, with its lock and its flags.
  local build_dir
  build_dir=$(mktemp -d)
  # Without --locked: the lock file that wasm-bindgen-cli publishes does not build here.
  CARGO_TARGET_DIR=$build_dir cargo install --force --quiet --version "$version" "$crate"
  rm -rf "$build_dir"
}

need_wasm_bindgen() {
  [[ -n $WASM_BINDGEN_VERSION ]] || die "Cargo.lock names no wasm-bindgen version"
  need_cargo_tool wasm-bindgen-cli wasm-bindgen "$WASM_BINDGEN_VERSION"
}

need_wasm_pack() { need_cargo_tool wasm-pack wasm-pack "$WASM_PACK_VERSION"; }

need_npm_packages() {
  need_node
  local package installed missing=()
  for package in "${NPM_PACKAGES[@]}"; do
    installed=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "tests/node_modules/${package%@*}/package.json" 2>/dev/null || true)
    [[ $installed == "${package##*@}" ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  say "installing ${NPM_PACKAGES[*]} into tests/node_modules"
  # All of them at once: npm removes packages that no argument and no package.json names.
  npm install --prefix tests --no-save --no-package-lock --no-audit --no-fund --loglevel=error "${NPM_PACKAGES[@]}"
}

# What is there counts, whoever installed it; what is missing comes from Debian.
need_browser() {
  local missing=()
  [[ -n ${CHROMIUM:-} ]] || command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  compgen -G '/usr/share/vulkan/icd.d/*.json' >/dev/null || compgen -G '/etc/vulkan/icd.d/*.json' >/dev/null ||
    missing+=(mesa-vulkan-drivers)
  [[ ${#missing[@]} -eq 0 ]] && return
  command -v apt-get >/dev/null ||
    die "missing: ${missing[*]} (Debian's names). There is no apt-get here: install them by hand, or name a Chromium in the variable CHROMIUM"
  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || die "installing ${missing[*]} needs root: run apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]} with apt"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# --- building -----------------------------------------------------------------------------------
print_sizes() {
  local file=$1
  printf '%s: %d bytes, %d with gzip\n' "$file" "$(stat -c %s "$file")" "$(gzip -9 -c "$file" | wc -c)"
}

# www/pkg/NAME/: a wasm module and its JavaScript, made again only from another module or in another way.
# `build_module NAME=FEATURES=PROFILE [PACKAGE FOLDER]`
build_module() {
  local name features profile package=${2:-latent-canvas} pkg_dir=${3:-$PKG_DIR}
  IFS='=' read -r name features profile <<<"$1"
  local built=$TARGET_DIR/$RUST_TARGET/$profile/${package//-/_}.wasm level=-Os
  if [[ $profile == small ]]; then level=-Oz; fi
  timed "compiling the module $name" \
    cargo build --profile "$profile" --target "$RUST_TARGET" -p "$package" --features "$features"
  # By content: cargo writes every feature set to the same file, so its date says nothing.
  local made_from
  made_from=$(sha256sum <"$built" | cut -d' ' -f1)
  made_from="$made_from wasm-bindgen $WASM_BINDGEN_VERSION ${NPM_PACKAGES[0]} $level ${WASM_OPT[*]}"
  local done_dir=$pkg_dir/$name module=${package//-/_}_bg.wasm
  if [[ -f $done_dir/$module && $(cat "$done_dir/made-from.txt" 2>/dev/null || true) == "$made_from" ]]; then
    print_sizes "$done_dir/$module"
    return
  fi
  local staging=$TARGET_DIR/pkg-$package-$name
  rm -rf "$staging"
  timed "wasm-bindgen for $name" wasm-bindgen --target web --out-dir "$staging" "$built"
  timed "wasm-opt for $name" tests/node_modules/.bin/wasm-opt "$level" "${WASM_OPT[@]}" "$staging/$module" -o "$staging/$module"
  printf '%s\n' "$made_from" >"$staging/made-from.txt"
  # In one move: an interrupted build leaves the former module whole.
  mkdir -p "$pkg_dir"
  rm -rf "$done_dir"
  mv "$staging" "$done_dir"
  print_sizes "$done_dir/$module"
}

build_wasm() {
  need_rust_target
  need_wasm_bindgen
  need_npm_packages
  local module
  for module in "${WASM_MODULES[@]}"; do build_module "$module"; done
}

# The module that most visitors get stays small.
check_module_size() {
  local module=$PKG_DIR/webgpu/latent_canvas_bg.wasm bytes
  build_module webgpu=plan=small
  bytes=$(gzip -9 -c "$module" | wc -c)
  [[ $bytes -le $WEBGPU_MODULE_LIMIT ]] ||
    die "$module has $bytes bytes with gzip, more than the $WEBGPU_MODULE_LIMIT that it may have"
}

# --- commands -----------------------------------------------------------------------------------
cmd_serve() {
  [[ $# -eq 0 ]] || die "serve takes no options; PORT=8000 ./build.sh serve changes the port"
  build_wasm
  say "http://127.0.0.1:${PORT:-8080}/ (Ctrl+C stops)"
  exec node tests/page/serve.mjs --port "${PORT:-8080}" --dir www
}

cmd_generate() {
  if [[ " $* " == *" --native "* ]]; then
    need_rust
    # Mesa's software adapter looks for a folder of the session and says so at length where there is none.
    export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)}
    exec cargo run --quiet --release -p latent-canvas --features cli,plan --bin generate -- "$@"
  fi
  need_node
  # Before anything is built: a wrong option is told in a moment, and help needs no browser.
  local code=0
  node tests/page/generate-options.mjs "$@" || code=$?
  if [[ $code -eq 3 ]]; then exit 0; fi
  if [[ $code -ne 0 ]]; then exit "$code"; fi
  {
    need_browser
    build_wasm
  } >&2
  exec node tests/page/generate.mjs "$@"
}

test_native() {
  # On its own: its test dependencies would change features under burn, which would be compiled once more.
  cargo test -p weights-loader
  # Mesa's software adapter looks for a folder of the session and says so at length where there is none.
  XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)} \
    cargo test -p latent-canvas -p latent-canvas-tests --features "$NATIVE_FEATURES"
}

test_browser() {
  test_in_browser burn-wgpu browser
  test_in_browser plan replay_browser
}

# `test_in_browser FEATURES TEST`
test_in_browser() {
  # wasm-pack takes wasm-bindgen-test-runner from beside the wasm-bindgen in PATH when its version is
  # the one in Cargo.lock; the runner reads tests/webdriver.json because cargo starts it in tests/.
  WASM_BINDGEN_TEST_TIMEOUT=1800 WASM_BINDGEN_TEST_DRIVER_TIMEOUT=60 \
    wasm-pack test --headless --chrome --chromedriver "$(command -v chromedriver)" --mode no-install --release \
    tests --features "$1" --test "$2"
}

# Files by name: what `node --test FOLDER` means differs between Node 20 and 22.
test_page() { node --test tests/page/*.test.mjs; }

# Stable Diffusion 1.5 in its real size, with weights drawn on the spot: minutes and 2 GB of memory on a software adapter.
test_full_size_native() {
  XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)} cargo test --release -p latent-canvas-tests \
    --features latent-canvas-tests/plan --test full_size -- --ignored --nocapture --test-threads 1
}

cmd_test() {
  if [[ ${1:-} == --full ]]; then
    need_rust_target
    need_wasm_bindgen
    need_wasm_pack
    need_browser
    timed "full-size tests" test_full_size_native
    timed "full-size test in Chromium" test_in_browser plan full_size_browser
    return
  fi
  [[ $# -eq 0 ]] || die "test knows only the option --full"
  need_rust_target
  need_wasm_bindgen
  need_wasm_pack
  need_npm_packages
  need_browser
  timed "native tests" test_native
  build_wasm
  timed "tests in Chromium (wasm-pack)" test_browser
  timed "tests of the page (Playwright)" test_page
}

cmd_check() {
  need_rust_target
  need_rust_components
  need_wasm_bindgen
  need_npm_packages
  timed "rules of the tree" tests/rules.sh
  timed "JavaScript syntax" check_javascript
  timed "rustfmt" cargo fmt --all --check
  timed "clippy: weights-loader" cargo clippy -p weights-loader --all-targets -- -D warnings
  timed "clippy: without burn" cargo clippy -p latent-canvas --features cli -- -D warnings
  timed "clippy: with burn" cargo clippy -p latent-canvas -p latent-canvas-tests \
    --features "$NATIVE_FEATURES" --all-targets -- -D warnings
  timed "clippy: wasm, without burn" cargo clippy --release --target "$RUST_TARGET" -p latent-canvas -- -D warnings
  timed "clippy: wasm, with burn" cargo clippy --release --target "$RUST_TARGET" -p latent-canvas -p latent-canvas-tests \
    --features latent-canvas-tests/burn-wgpu --lib --test browser -- -D warnings
  timed "clippy: wasm, with plan" cargo clippy --release --target "$RUST_TARGET" -p latent-canvas -p latent-canvas-tests \
    --features latent-canvas-tests/plan --lib --test replay_browser --test full_size_browser -- -D warnings
  timed "size of the webgpu module" check_module_size
  timed "clippy: bench" cargo clippy -p latent-canvas-bench --features plan --all-targets -- -D warnings
  timed "clippy: wasm, bench" cargo clippy --release --target "$RUST_TARGET" -p latent-canvas-bench --features plan \
    -- -D warnings
  timed "documentation" env RUSTDOCFLAGS="-D warnings" cargo doc --no-deps \
    -p weights-loader -p latent-canvas --features latent-canvas/burn,latent-canvas/plan
}

check_javascript() {
  local file
  # From standard input: `node --check FILE` says nothing about a broken module whose name ends in .js.
  git ls-files '*.js' '*.mjs' | while read -r file; do
    node --input-type=module --check <"$file" || die "$file is not valid JavaScript"
  done
}

need_golden_python() {
  command -v python3 >/dev/null || die "Python is missing. Run: apt-get install python3 python3-venv"
  local requirements=tests/golden/requirements.txt stamp=$GOLDEN_VENV/requirements.txt
  cmp -s "$requirements" "$stamp" && return
  say "installing $requirements into $GOLDEN_VENV"
  python3 -m venv --clear "$GOLDEN_VENV"
  "$GOLDEN_VENV/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$stamp"
}

cmd_golden() {
  need_golden_python
  "$GOLDEN_VENV/bin/python" tests/golden/generate.py "$@"
  if [[ ${1:-} == --full ]]; then cmd_manifest "$FULL_SIZE_MODEL"; fi
}

# Lists the files that a page fetches from a model folder, with what it takes to verify them.
cmd_manifest() {
  local model=${1:-} path separator=
  [[ -f $model/model_index.json ]] || die "manifest DIR: DIR must be a diffusers folder with a model_index.json"
  local name
  name=$(basename "$(realpath "$model")")
  {
    printf '{\n  "name": "%s",\n  "files": [' "$name"
    while read -r path; do
      [[ $name/$path =~ ^[A-Za-z0-9._/-]+$ ]] || die "$path: only letters, digits, '.', '_' and '-' in file names"
      printf '%s\n    { "path": "%s", "length": %d, "sha256": "%s" }' "$separator" "$path" \
        "$(stat -c %s "$model/$path")" "$(sha256sum "$model/$path" | cut -d' ' -f1)"
      separator=,
    done < <(list_model_files "$model")
    printf '\n  ]\n}\n'
  } >"$model/manifest.json.new"
  mv "$model/manifest.json.new" "$model/manifest.json"
  printf '%s: %d files\n' "$model/manifest.json" "$(list_model_files "$model" | wc -l)"
}

# The layout's own folders only: a recipe or a licence beside them is no part of the model.
list_model_files() {
  local component
  echo model_index.json
  for component in scheduler text_encoder tokenizer unet vae; do
    [[ -d $1/$component ]] || die "$1 has no folder $component"
    (cd "$1" && find "$component" -maxdepth 1 -type f \( -name '*.json' -o -name 'merges.txt' -o -name '*.safetensors' \))
  done | LC_ALL=C sort
}

# From the configs alone: no weights, no GPU.
cmd_plan() {
  need_rust
  exec cargo run --quiet -p latent-canvas --features cli --bin plan -- "$@"
}

# What attention takes in its forms, as a table in Markdown.
cmd_attention_memory() {
  need_rust
  local binary
  binary=$(release_test attention_memory)
  XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)} "$binary" --ignored --nocapture --exact table | grep '^|\|^float32'
}

# The program of a native test, built for release: `release_test NAME`.
release_test() {
  cargo test --quiet --release -p latent-canvas-tests --features latent-canvas-tests/plan --test "$1" --no-run \
    --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

# The checks of a GPU. The programs are built here and need nothing of Rust where they run: `gpu-check --build` only builds them, and
# `tests/gpu-check.sh FOLDER` starts them elsewhere.
cmd_gpu_check() {
  need_rust
  local folder=$TARGET_DIR/gpu-check name
  mkdir -p "$folder"
  for name in kernels full_size; do
    say "building $name"
    install -s "$(release_test "$name")" "$folder/$name"
  done
  say "building bench"
  cargo build --quiet --release -p latent-canvas-bench --features plan,burn-wgpu --bin bench
  install -s "$TARGET_DIR/release/bench" "$folder/bench"
  case ${1:-} in
    --build) printf 'run: tests/gpu-check.sh %s\n' "$folder" ;;
    '') tests/gpu-check.sh "$folder" ;;
    *) die "gpu-check knows only the option --build" ;;
  esac
}

# What the bench in Chromium compares with: networks as ONNX files, made by Python, and a runtime for them.
need_onnxruntime() {
  need_golden_python
  local requirements=tests/bench/requirements.txt stamp=$GOLDEN_VENV/bench-requirements.txt
  if ! cmp -s "$requirements" "$stamp"; then
    say "installing $requirements into $GOLDEN_VENV"
    "$GOLDEN_VENV/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$stamp"
  fi
  local installed
  installed=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' tests/bench/node_modules/onnxruntime-web/package.json 2>/dev/null || true)
  [[ $installed == "$ONNXRUNTIME_VERSION" ]] && return
  say "installing onnxruntime-web $ONNXRUNTIME_VERSION into tests/bench/node_modules"
  npm install --prefix tests/bench --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
    "onnxruntime-web@$ONNXRUNTIME_VERSION"
}

# The engines side by side: in Chromium, or with --native on the system's adapter. With --ablation one optimisation off at a time.
cmd_bench() {
  local where=chromium features=plan folder=$TARGET_DIR/bench rest=() json
  case ${1:-} in
    --native) where=native features=plan,burn-wgpu && shift ;;
    --ablation) where=ablation rest=(--ablation) && shift ;;
  esac
  mkdir -p "$folder"
  json=$folder/$where.json
  while [[ $# -gt 0 ]]; do
    if [[ $1 == --json ]]; then json=${2:?--json needs a file} && shift; else rest+=("$1"); fi
    shift
  done
  need_rust
  timed "building bench" cargo build --release -p latent-canvas-bench --features "$features" --bin bench
  local bench=$TARGET_DIR/release/bench
  export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$(mktemp -d)}
  if [[ $where != chromium ]]; then exec "$bench" --json "$json" "${rest[@]}"; fi
  need_rust_target
  need_wasm_bindgen
  need_npm_packages
  need_browser
  need_onnxruntime
  for features in plan burn-wgpu; do build_module "$features=$features=release" latent-canvas-bench "$folder"; done
  "$bench" --export "$folder/data"
  timed "exporting to ONNX" "$GOLDEN_VENV/bin/python" tests/bench/export_onnx.py "$folder/data" .
  timed "measuring in Chromium" node tests/bench/bench.mjs --built "$folder" --json "$json" "${rest[@]}"
  printf 'written: %s\n\n' "$json"
  "$bench" --table "$json"
}

cmd_help() {
  cat <<'HELP'
./build.sh serve                 build and serve the page on http://127.0.0.1:8080 (PORT=... changes it)
./build.sh generate OPTIONS      make a picture in headless Chromium; `generate --help` lists the options
./build.sh generate --native OPTIONS   make it with the system's own graphics API instead, without a browser
./build.sh test                  all tests: native, in Chromium, of the page
./build.sh check                 formatting, lints, documentation, the rules of the tree
./build.sh test --full           Stable Diffusion 1.5 in its real size on a native adapter, against diffusers
./build.sh gpu-check             kernels, full size and bench on this machine's GPU, within 6 minutes; --build only builds them
./build.sh attention-memory      what each form of attention takes at 512, 640 and 768 px, as a table
./build.sh golden                make the fixtures of tests/golden again (Python; not needed to test)
./build.sh golden --full         the same for the real size, and the model's folder with random weights (2 GB) in .tools/full-size
./build.sh bench [--native|--ablation] OPTIONS   the engines side by side, in Chromium (needs Python) or natively; or each optimisation off
./build.sh plan OPTIONS          print the GPU memory a model takes at a size, as JSON; `plan --help` lists the options
./build.sh manifest DIR          write DIR/manifest.json for a diffusers folder
HELP
}

command=${1:-help}
if [[ $# -gt 0 ]]; then shift; fi
case $command in
  serve | generate | test | check | golden | plan | manifest | attention-memory | gpu-check | bench | help) "cmd_${command//-/_}" "$@" ;;
  -h | --help) cmd_help ;;
  *) cmd_help >&2; die "there is no command $command" ;;
esac
