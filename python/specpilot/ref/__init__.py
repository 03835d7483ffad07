"""Torch oracles of the ops, written by other means than the kernels: for tests."""
