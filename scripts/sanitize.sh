#!/usr/bin/env bash
# The extension under AddressSanitizer and UndefinedBehaviorSanitizer, driven by the tests that feed it untrusted files and odd
# shapes:   scripts/sanitize.sh [build directory] [pytest arguments]     (about 5 minutes on 2 cores, most of them the build)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/asan}
shift || true
cmake -S . -B "$build" -DSKBUILD=ON -DSPECPILOT_CUDA=OFF -DSPECPILOT_SANITIZE=address,undefined \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" \
  -DPython_EXECUTABLE="$(command -v python)" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" >/dev/null
cmake --build "$build" --target _C -j2
site=$build/site
mkdir -p "$site"
rm -rf "$site/specpilot"
cp -r python/specpilot "$site/"
rm -f "$site"/specpilot/_C*.so
cp "$build"/_C*.so "$site/specpilot/"
export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export OMP_NUM_THREADS=1 # torch is not what is tested; its threads would spin against each other
[ $# -gt 0 ] || set -- tests/formats tests/ops -m "not slow"
PYTHONPATH="$site" python -m pytest -q -p no:cacheprovider "$@"
