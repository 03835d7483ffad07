"""A name → implementation table with an error that lists what is known."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Registry(Generic[T]):
    """``MODELS.add("LlamaForCausalLM", "specpilot.models.llama:Llama")``; the module is imported on first use."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, T | str] = {}

    def add(self, name: str, entry: T | str) -> None:
        if name in self._entries:
            raise ValueError(f"{self.what} {name!r} is registered twice")
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[T], T]:
        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    def names(self) -> list[str]:
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __getitem__(self, name: str) -> T:
        try:
            entry = self._entries[name]
        except KeyError:
            known = ", ".join(self.names())
            raise KeyError(f"unknown {self.what} {name!r}; known: {known}") from None
        if isinstance(entry, str):
            module, attribute = entry.split(":")
            entry = cast(T, getattr(importlib.import_module(module), attribute))
            self._entries[name] = entry
        return entry
