"""Tests that need a GPU: a mark that skips them, with the reason, where none can be used."""

from __future__ import annotations

import pytest

from specpilot import devices

OBSTACLE = devices.obstacle(0, devices.facts())
needs_gpu = pytest.mark.skipif(OBSTACLE is not None, reason=f"needs a GPU: {OBSTACLE}")
DEVICES = ["cpu", pytest.param("cuda:0", marks=needs_gpu)]
