"""Oracle of advance: one request after the other, over lists."""

from __future__ import annotations

import torch
from torch import Tensor

IDS, POSITIONS, SLOTS, REQUEST, PREFIX = range(5)


def advance(
    state: Tensor,
    emitted: Tensor,
    length: Tensor,
    margins: Tensor | None,
    stop_ids: Tensor,
    slot_table: Tensor,
    chain: Tensor,
    block: Tensor | None,
    causal: Tensor | None,
    context: Tensor | None,
    ring: Tensor,
) -> None:
    """Arguments as the op takes them; state, the row sets and ring are updated."""
    stops, reach = set(stop_ids.tolist()), slot_table.shape[1]
    for b in range(state.shape[0]):
        start, left, done, step = state[b].tolist()
        tokens: list[int] = []
        while not done and left and len(tokens) < int(length[b]):
            tokens.append(int(emitted[b, len(tokens)]))
            left -= 1
            done = int(tokens[-1] in stops or not left)
        done = int(done or not left)

        def slots(positions: list[int], written: int, b: int = b) -> Tensor:
            known = [int(slot_table[b, p]) if p < reach else -1 for p in positions[:written]]
            return torch.tensor(known + [-1] * (len(positions) - written), dtype=torch.int32)

        if context is not None:
            positions = list(range(start, start + context.shape[2]))
            context[POSITIONS, b] = torch.tensor(positions)
            context[SLOTS, b] = slots(positions, 0 if done else min(len(tokens), len(positions)))
            context[REQUEST, b] = b
        start += len(tokens)
        for rows, whole in ((chain, False), (block, True), (causal, False)):
            if rows is None:
                continue
            width = rows.shape[2]
            positions = list(range(start, start + width))
            if tokens and width:
                rows[IDS, b, 0] = tokens[-1]
            rows[POSITIONS, b] = torch.tensor(positions)
            rows[SLOTS, b] = slots(positions, 0 if done else width)
            rows[REQUEST, b] = b
            sees = [start + width if whole else p + 1 for p in positions]
            rows[PREFIX, b] = torch.tensor(sees).clamp(max=reach)
        entry = ring[step % ring.shape[0], b]
        entry[0], entry[1], entry[2:] = len(tokens), done, -1
        entry[2 : 2 + len(tokens)] = torch.tensor(tokens)
        entry[2 + emitted.shape[1] :] = 0 if margins is None else margins[b].view(torch.int32)
        state[b] = torch.tensor([start, left, done, step + 1])
