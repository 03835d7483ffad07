"""Verifiers, by the name a user gives."""

from __future__ import annotations

from ..registry import Registry
from .base import Parts, Verifier

__all__ = ["VERIFIERS", "Parts", "Verifier"]

VERIFIERS: Registry[type[Verifier]] = Registry("verifier")
VERIFIERS.add("ar", "specpilot.verify.ar:AR")
VERIFIERS.add("chain", "specpilot.verify.chain:Chain")
