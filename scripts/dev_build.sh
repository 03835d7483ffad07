#!/usr/bin/env bash
# Incremental build of the extension into the source tree, for work on kernels:
#   scripts/dev_build.sh [extra cmake arguments] && PYTHONPATH=python python -c 'import specpilot'
set -eu
cd "$(dirname "$0")/.."
build=${SPECPILOT_BUILD_DIR:-build/dev}
cmake -S . -B "$build" -G Ninja -DSKBUILD=ON -DSPECPILOT_CUDA="${SPECPILOT_CUDA:-OFF}" \
  -DPython_EXECUTABLE="$(command -v python)" -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" "$@" >/dev/null
cmake --build "$build" --target _C
cp "$build"/_C*.so python/specpilot/
