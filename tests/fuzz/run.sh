#!/usr/bin/env bash
# Looks for inputs that fail: every fuzz target for SECONDS (60 by default) from its corpus, under ASan and UBSan.
#
#     tests/fuzz/run.sh [SECONDS] [FOLDER]     FOLDER keeps the build and the inputs found for the next run
#
# The native targets need clang with libFuzzer (CXX, clang++ or a numbered one), the one of texts atheris; what is not
# there is said and left out. What fails lies in FOLDER/found: give it a name that begins with `found-` in the corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
folder=${2:-$(mktemp -d)}
mkdir -p "$folder/found"

fuzzing_compiler() {
  local compiler
  for compiler in "${CXX:-}" clang++ clang++-{21..14} /usr/lib/llvm-{21..14}/bin/clang++; do
    [ -n "$compiler" ] && command -v "$compiler" >/dev/null || continue
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' >"$folder/probe.cpp"
    if "$compiler" -fsanitize=fuzzer,address "$folder/probe.cpp" -o "$folder/probe" 2>/dev/null; then
      echo "$compiler"
      return
    fi
  done
}

run() {  # name, command
  local name=$1 log=$folder/$1.log
  shift
  mkdir -p "$folder/$name"
  if ! "$@" "$folder/$name" "tests/fuzz/corpus/$name" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
    -max_len=16384 -artifact_prefix="$folder/found/$name-" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "$name failed; its input is in $folder/found" >&2
    exit 1
  fi
  echo "$name: $(grep -a '^Done' "$log")"
}

compiler=$(fuzzing_compiler)
if [ -n "$compiler" ]; then
  cmake -S csrc -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$compiler" \
    -DPYLLAMACPP_FUZZ=ON -DPYLLAMACPP_SANITIZE=address,undefined -DPython_EXECUTABLE="$(command -v python)" \
    -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
  cmake --build "$folder/build" --target fuzz_targets >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
  for target in tests/fuzz/fuzz_*.cpp; do
    name=$(basename "$target" .cpp)
    run "$name" "$folder/build/$name"
  done
else
  echo "native targets left out: no clang with libFuzzer here (apt-get install clang)"
fi
if python -c 'import atheris' 2>/dev/null; then
  run fuzz_text python tests/fuzz/fuzz_text.py
else
  echo "fuzz_text left out: no atheris here (pip install atheris)"
fi
