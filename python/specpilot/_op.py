"""Registers a kernel as a torch operator without paying for it in eager mode.

Eager calls on plain tensors go straight to the bound C++ function. Under ``torch.compile``, ``FakeTensorMode`` or with a tensor
subclass the call goes through ``torch.ops.specpilot.<name>``, whose fake kernel lets Dynamo trace it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_lib = torch.library.Library("specpilot", "DEF")
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def op(schema: str, kernel: Callable[..., None]) -> Callable[..., None]:
    """``schema``: ``"swiglu(Tensor gate_up, Tensor(a!) y) -> ()"``. Ops write into arguments and return nothing.

    The returned function takes the schema's arguments positionally, and ``variant=`` (tests and benches) by keyword.
    """
    name = schema.split("(", 1)[0]
    _lib.define(schema)
    for key in ("CPU", "CUDA"):
        _lib.impl(name, kernel, key)
    torch.library.register_fake(f"specpilot::{name}", lambda *a, **k: None, lib=_lib)
    overload = getattr(torch.ops.specpilot, name).default
    is_compiling = torch.compiler.is_compiling

    def call(*args: Any, variant: str = "") -> None:
        if is_compiling() or type(args[0]) not in _PLAIN:
            overload(*args)
        elif variant:
            kernel(*args, variant=variant)
        else:
            kernel(*args)

    call.__name__ = call.__qualname__ = name
    return call
