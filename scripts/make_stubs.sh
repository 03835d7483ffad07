#!/usr/bin/env bash
# Type stubs of the extension, from the installed package:   scripts/make_stubs.sh python/specpilot
set -euo pipefail
out=${1:?directory for _C.pyi}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python -m pybind11_stubgen specpilot._C -o "$work" --ignore-all-errors >/dev/null 2>&1
mkdir -p "$out"
cp "$work/specpilot/_C.pyi" "$out/_C.pyi"
ruff format -q "$out/_C.pyi"
