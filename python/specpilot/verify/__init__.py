"""Verifiers, by the name a user gives: driven by the host, and sync-free ones of the same names."""

from __future__ import annotations

from ..registry import Registry
from .base import Parts, Step, Verifier

__all__ = ["SYNC_FREE", "VERIFIERS", "Parts", "Step", "Verifier"]

VERIFIERS: Registry[type[Verifier]] = Registry("verifier")
VERIFIERS.add("ar", "specpilot.verify.ar:AR")
VERIFIERS.add("chain", "specpilot.verify.chain:Chain")

SYNC_FREE: Registry[type[Verifier]] = Registry("sync-free verifier")
SYNC_FREE.add("ar", "specpilot.verify.sync_free:SyncFreeAR")
SYNC_FREE.add("chain", "specpilot.verify.sync_free:SyncFreeChain")
