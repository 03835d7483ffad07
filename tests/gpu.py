"""Tests that need a GPU: a mark that skips them, with the reason, where none can be used; weights that CUDA cuts differently."""

from __future__ import annotations

import pytest

from specpilot import devices

OBSTACLE = devices.obstacle(0, devices.facts())
needs_gpu = pytest.mark.skipif(OBSTACLE is not None, reason=f"needs a GPU: {OBSTACLE}")
DEVICES = ["cpu", pytest.param("cuda:0", marks=needs_gpu)]

# Weights [n, k] that w12_cuda::plan cuts in every way; test_cuda_layout.py holds them to it.
LINEAR_SHAPES = [
    *[(1, 1), (17, 33), (40, 7), (48, 576), (960, 576), (576, 1536), (300, 5000), (2100, 200), (640, 1100)],
    *[(600, 5000), (2100, 1100), (4300, 50), (4301, 1030)],  # one row group a block
    *[(6401, 100), (9001, 200), (12701, 200), (21140, 250)],  # several, and several segments
    *[(51000, 330), (70001, 330)],  # several rounds
]
