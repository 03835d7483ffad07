"""What is made once for a target and a drafter, and the loop that decodes with it."""

from .decode import Result, TextIterator
from .engine import Engine
from .load import load

__all__ = ["Engine", "Result", "TextIterator", "load"]
