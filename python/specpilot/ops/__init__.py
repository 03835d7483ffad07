"""One thin call an op; contracts are in csrc/ops/<op>/<op>.h."""

from .linear import linear

__all__ = ["linear"]
