"""The engine: everything that is made once for a target and a drafter, and the calls a user makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar, cast

import torch
from transformers import PreTrainedTokenizerBase

from .. import cost, ops
from ..drafters import Drafter
from ..layers import LayerShape, Taps
from ..models import Target, Work
from ..verify import SYNC_FREE, VERIFIERS, Parts, Verifier
from ..width_policy import Auto, Fixed, WidthPolicy
from .decode import Generation, Request, Result, TextIterator
from .kv_cache import KvCache, PagePool
from .prompt import Prompt, encode, is_one_prompt
from .rows import Rows, SlotTable

CHUNK = 512  # rows of a prefill call at most
PLANNED = ("tree", "two-level")
T = TypeVar("T")


def chunk_rows(block: int, max_context: int) -> int:
    """Rows of the largest call: a prefill's, or a block's."""
    return max(block, min(CHUNK, max_context))


def buffer_bytes(
    layers: Sequence[tuple[int, LayerShape]], vocab: int, max_context: int, block: int, taps: int
) -> dict[str, int]:
    """What an engine allocates besides weights: ``layers`` are (count, shape) of the target and, if any, the drafter."""
    chunk, slots = chunk_rows(block, max_context), max_context + block
    kv = sum(KvCache.bytes_for(n, s.kv_heads, s.head_dim, slots) for n, s in layers)
    (_, target), *drafter = layers
    rope = sum(2 * slots * s.head_dim for _, s in layers)
    work = Work.bytes_for(target, chunk) + 2 * block * (vocab + target.hidden) * len(layers)
    for n, s in drafter:  # a block's rows, and a chunk of context: its hidden states, K and V of all layers
        work += Work.bytes_for(s, block) + 2 * chunk * (s.hidden + 2 * n * s.kv_heads * s.head_dim)
    rows = 4 * slots + 20 * (chunk + len(drafter) * (chunk + 2 * block))
    return {"KV cache": kv, "buffers": rope + work + rows + 2 * max(chunk, 2 * block) * taps * target.hidden}


class DrafterMemory:
    """What a drafter allocates from: caches and rows that go with the engine's slot table."""

    def __init__(self, table: SlotTable, slots: int, max_context: int, context_rows: int) -> None:
        self._table, self._slots = table, slots
        self._device = table.tensor.device
        self.max_context, self.context_rows = max_context, context_rows

    def rows(self, capacity: int) -> Rows:
        return Rows(capacity, self._table)

    def kv(self, layers: int, kv_heads: int, head_dim: int) -> KvCache:
        return KvCache(layers, kv_heads, head_dim, self._slots, self._device)


class Engine:
    """A target with its caches, ready to decode one request at a time; made by ``specpilot.load``. All of it lies on the device of
    the target's weights.

    ``sync_free``: steps do not wait for the host (verify/sync_free.py), as is usual on a GPU; may be changed between requests and
    changes no token. Without it the host sees each step through, and may choose its width once the drafts are known.
    ``page_order``: the order in which pages of the KV cache are given out, ascending by default. It has no effect on any bit.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_context: int,
        stop_ids: Sequence[int] = (),
        cost_key: dict[str, Any] | None = None,
        page_order: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        self.target, self.drafter, self.tokenizer = target, drafter, tokenizer
        self.max_context, self.stop_ids = max_context, frozenset(stop_ids)
        self._cost_key = cost_key
        self.device = device = target.device
        self.sync_free = device.type == "cuda"
        config, block = target.config, drafter.block_size if drafter else 1
        self._block, slots = block, max_context + block
        chunk = chunk_rows(block, max_context)
        self._kv = KvCache(config.num_layers, target.shape.kv_heads, target.shape.head_dim, slots, device)
        pool = PagePool(page_order(self._kv.pages)) if page_order else PagePool.of(self._kv.pages)
        self._table = SlotTable(pool, 1, slots, device)
        self._rows = Rows(chunk, self._table)
        self._work = Work(target.shape, config.vocab_size, chunk, block, device)
        self._index, self._first = torch.zeros(2, 1, dtype=torch.int32, device=device)
        self._taps = None
        if drafter:
            width = len(drafter.tap_layers) * config.hidden_size
            rows = max(chunk, 2 * block)
            self._taps = Taps(
                tuple(drafter.tap_layers), torch.zeros(rows, width, dtype=torch.bfloat16, device=device)
            )
            drafter.allocate(DrafterMemory(self._table, slots, max_context, chunk))
        self._parts = Parts(target, config.valid_vocab, self._rows, self._kv, self._work, drafter, self._taps)
        self._verifiers: dict[tuple[str, bool], Verifier] = {}
        self._autos: dict[bool, Auto] = {}
        self._busy = threading.Lock()

    def encode(
        self, prompt: Prompt, *, system: str | None = None, enable_thinking: bool | None = None
    ) -> list[int]:
        """Token ids of a prompt: a string (through the chat template if there is one), messages, or ids."""
        return encode(prompt, self.tokenizer, self.target.config.valid_vocab, system, enable_thinking)

    def decode(self, prompt: Prompt | Sequence[Prompt], **options: Any) -> Any:
        """The ``Result`` of a prompt, or a list of them for a list of prompts; options as in ``stream``."""
        if not is_one_prompt(prompt):
            return [self._decode(p, **options) for p in cast(Sequence[Prompt], prompt)]
        return self._decode(prompt, **options)

    def _decode(self, prompt: Any, **options: Any) -> Result:
        generation = self._generation(prompt, every_step=False, **options)
        for _ in generation:
            pass
        return generation.result

    def stream(self, prompt: Prompt, **options: Any) -> TextIterator:
        """Pieces of text as they come; ``.result`` of what is returned is whole at the end.

        Options: max_new_tokens=256, verify="auto" ("chain", "ar"), stop=(), system=None, enable_thinking=None,
        ignore_stop_ids=False, temperature=0.0, seed=None.
        """
        return TextIterator(self._generation(prompt, every_step=True, **options))

    def _generation(
        self,
        prompt: Any,
        *,
        every_step: bool,
        max_new_tokens: int = 256,
        verify: str = "auto",
        stop: str | Sequence[str] = (),
        system: str | None = None,
        enable_thinking: bool | None = None,
        ignore_stop_ids: bool = False,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Generation:
        if temperature != 0:
            raise ValueError(
                f"temperature {temperature} is not supported: this release decodes greedily (temperature=0)"
            )
        if not isinstance(max_new_tokens, int) or isinstance(max_new_tokens, bool) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {max_new_tokens!r}, expected an integer of at least 1")
        stops = tuple(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
        if not all(isinstance(s, str) and s for s in stops):
            raise ValueError(f"stop is {stop!r}, expected strings that are not empty")
        if stops and self.tokenizer is None:
            raise ValueError("stop strings need a tokenizer, and the target's checkpoint has none")
        ids = self.encode(prompt, system=system, enable_thinking=enable_thinking)
        if len(ids) >= self.max_context:
            raise ValueError(
                f"the prompt has {len(ids)} tokens, which leaves no room in a context of {self.max_context}: "
                "shorten it, or load with a larger max_context"
            )
        stop_ids = frozenset() if ignore_stop_ids else self.stop_ids
        verifier, policy = self._mode(verify)
        return Generation(self, Request(ids, max_new_tokens, stop_ids, stops), verifier, policy, every_step)

    def _mode(self, verify: str) -> tuple[Verifier, WidthPolicy]:
        if verify in PLANNED:
            raise ValueError(f"verify={verify!r} is not in this release; there are 'auto', 'chain' and 'ar'")
        if verify == "auto":
            return (
                (self._verifier("chain"), self._auto()) if self.drafter else (self._verifier("ar"), Fixed(1))
            )
        if verify not in VERIFIERS:
            raise ValueError(f"verify={verify!r}, expected 'auto' or one of {', '.join(VERIFIERS.names())}")
        if verify != "ar" and self.drafter is None:
            raise ValueError(
                f"verify={verify!r} needs a drafter, and this engine has none: load with drafter=…, or use verify='ar'"
            )
        verifier = self._verifier(verify)
        return verifier, Fixed(verifier.max_width)

    def _verifier(self, name: str) -> Verifier:
        key = name, self.sync_free
        if key not in self._verifiers:
            self._verifiers[key] = (SYNC_FREE if self.sync_free else VERIFIERS)[name](self._parts)
        return self._verifiers[key]

    def _auto(self) -> Auto:
        """Step times are measured at the first use, in an empty context, unless they are known from before."""
        sync_free = self.sync_free
        if sync_free not in self._autos:
            make, facts = partial(self.time_steps, cost.measure), self.cost_facts
            costs = make() if facts is None else cost.stored(facts, self.device, self._widths(), make)
            self._autos[sync_free] = Auto(costs, narrows=not sync_free)
        return self._autos[sync_free]

    def _widths(self) -> list[int]:
        """Those that "auto" chooses among."""
        return cost.widths_up_to(min(self._verifier("chain").max_width, self.max_context))

    @property
    def cost_facts(self) -> dict[str, Any] | None:
        """What step times depend on besides the machine, for ``cost.store``; None if that is not known."""
        return self._cost_key and {**self._cost_key, "sync_free": self.sync_free}

    def time_steps(self, measure: Callable[[Callable[[int], cost.StepTime], list[int]], T]) -> T:
        """``measure(run, widths)``, with the engine taken: the widths of steps that "auto" chooses among, and ``run(width)``, which
        gives the times of one step of a chain in an empty context. Raises ValueError without a drafter."""
        run, widths = self._verifier("chain").seconds, self._widths()
        self.acquire()
        try:
            with self.current():
                self._table.reserve(0, min(self._block, self.max_context) + self._block)
                return measure(run, widths)
        finally:
            self.release()

    def current(self) -> AbstractContextManager[Any]:
        """Makes its device the current one, on which kernels start."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def acquire(self) -> None:
        """Takes the engine for one request."""
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("the engine is busy with another generation: finish its stream, or close() it")

    def release(self) -> None:
        self._table.release(0)
        self._busy.release()

    def prefill(self, prompt: Sequence[int], verifier: Verifier, new_tokens: int = 1) -> int:
        """Runs the prompt through the target (and its taps through the drafter) and gives the first token.

        Slots are reserved for ``new_tokens`` and the rows of a step after the last of them: no step asks for more."""
        drafter, rows, work = verifier.drafter, self._rows, self._work
        self._table.reserve(0, min(len(prompt) + new_tokens, self.max_context) + self._block)
        for start in range(0, len(prompt), rows.capacity):
            ids = prompt[start : start + rows.capacity]
            n = len(ids)
            rows.put(ids)
            rows.chain(start, n)
            self.target.forward(rows, n, self._kv, work, self._taps if drafter else None)
            if drafter and self._taps:
                drafter.place_context(start, n)
                drafter.extend(self._taps.buffer, n)
        self._index[0] = n - 1
        self.target.logits(work, 1, self._index)
        ops.argmax(work.logits[:1], self.target.config.valid_vocab, self._first)
        return int(self._first[0])
