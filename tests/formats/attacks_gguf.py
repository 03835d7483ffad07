"""What a hostile GGUF file can say: name → (a function that breaks its parts, words its refusal must hold).

No words means that the mutation is harmless: the model loads with the tensors it had.
"""

from __future__ import annotations

import struct

from attacks_gguf_model import SETTINGS, TOKENIZER
from gguf import GGMLQuantizationType
from gguf_parts import (
    ARRAY,
    BOOL,
    F32,
    STRING,
    U8,
    U32,
    U64,
    Attack,
    array,
    assign,
    counts,
    info,
    kv,
    number,
    renamed,
    string,
)

EMBEDDING, NORM, QUERY = "token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"


COUNTS: dict[str, Attack] = {
    "magic": (assign(magic=b"GGML"), ("not a GGUF file",)),
    **{f"version {v}": (assign(version=v), (f"GGUF version {v}",)) for v in (0, 1, 4, 2**32 - 1)},
    "big-endian": (assign(version=3 << 24), ("big-endian",)),
    **{
        f"{n} {what} more": (counts(**{what: n}), ("declares", ""))
        for what in ("tensors", "entries")
        for n in (2**20, 2**62, 2**64 - 100)
    },
    "one tensor more": (counts(tensors=1), ("tensor",)),
    "one tensor less": (counts(tensors=-1), ("tensor",)),
    "one entry more": (counts(entries=1), ("the name of tensor 0",)),
    "one entry less": (counts(entries=-1), ("tensor",)),
}

VALUES: dict[str, Attack] = {
    **{
        f"a string's length is {n}": (kv("general.x", string("x", n)), ("general.x",))
        for n in (2**24, 2**40, 2**63, 2**64 - 1)
    },
    **{
        f"a key's length is {n}": (assign(patch=(24, struct.pack("<Q", n))), ("the key of metadata entry 0",))
        for n in (2**24, 2**40, 2**63, 2**64 - 1)
    },
    "a key twice": (lambda p: p.metadata.append(p.metadata[0]), ("general.architecture appears twice",)),
    "a string not UTF-8": (kv("general.x", string(b"\xff")), ("general.x is not UTF-8",)),
    **{
        f"unknown type {t}": (
            kv("general.x", struct.pack("<IQ", t, 0)),
            (f"general.x has the unknown type {t}",),
        )
        for t in (13, 255, 2**32 - 1)
    },
    **{
        f"array of {t}": (kv("general.x", array(t, [bytes(64)], 1)), (f"array of unknown type {t}",))
        for t in (ARRAY.value, 13, 2**32 - 1)
    },
    "arrays within arrays": (
        kv("general.x", struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 10_000),
        ("general.x is an array of unknown type 9",),
    ),
    **{
        f"array of {n} items": (kv("general.x", array(item, [], n)), (f"declares {n}", "general.x"))
        for n, item in ((2**20, U8), (2**61, U64), (2**63, U32), (2**64 - 1, STRING), (2**40, STRING))
    },
    "a boolean of 255": (kv("general.x", number(BOOL, 255)), ()),
    "an empty key": (kv("", number(U8, 1)), ()),
    "an empty array": (kv("general.x", array(F32, [])), ()),
    **{
        f"alignment {v}": (kv("general.alignment", number(U32, v)), (f"general.alignment is {v}",))
        for v in (0, 3, 48, 2**31)
    },
    "alignment larger than the file's": (kv("general.alignment", number(U32, 4096)), ("tensor", "overlaps")),
    "alignment a text": (kv("general.alignment", string("32")), ("general.alignment is '32'",)),
}

TENSORS: dict[str, Attack] = {
    **{
        f"{r} dimensions": (info(EMBEDDING, rank=r), (EMBEDDING, f"{r} dimensions"))
        for r in (0, 5, 2**32 - 1)
    },
    "a zero dimension": (info(EMBEDDING, dims=(0, 96)), (EMBEDDING, "dims (0, 96)")),
    "dims whose product wraps to 0": (info(EMBEDDING, dims=(2**32, 2**32)), (EMBEDDING, "cut short")),
    "dims whose product wraps to the size": (
        info(EMBEDDING, dims=(2**62 + 64 * 24, 4)),
        (EMBEDDING, "cut short"),
    ),
    "dims of 2**64 - 1": (info(EMBEDDING, dims=(2**64 - 1,) * 4), (EMBEDDING, "cut short")),
    "dims transposed": (info(QUERY, dims=(128, 32)), ("q_proj", "by the config it is")),
    "an embedding of one dimension": (info(EMBEDDING, dims=(64 * 96,)), (EMBEDDING, "two-dimensional")),
    **{
        f"type {t}": (info(EMBEDDING, type_=t), (EMBEDDING, f"unknown type {t}")) for t in (4, 255, 2**32 - 1)
    },
    "type integer": (info(NORM, type_=GGMLQuantizationType.I32), (NORM, "type I32, which is not read")),
    "type of other size": (info(EMBEDDING, type_=GGMLQuantizationType.F32), ("tensor", "overlaps")),
    "type of the same size": (
        info(EMBEDDING, type_=GGMLQuantizationType.I16),
        (EMBEDDING, "I16, which is not read"),
    ),
    "rows that are no whole blocks": (
        info(EMBEDDING, dims=(33, 96), type_=GGMLQuantizationType.Q8_0),
        (EMBEDDING, "multiple of 32"),
    ),
    **{
        f"position {b}": (info(NORM, begin=b), ("of the data",)) for b in (0, 1, 32, 2**40, 2**63, 2**64 - 32)
    },
    "a tensor twice": (lambda p: p.tensors.append(p.tensors[0]), ("appears twice",)),
    "two tensors on the same bytes": (
        lambda p: p.tensors.append(("copy", dict(p.tensors)[NORM])),
        ("overlaps the tensor before it",),
    ),
    "an unknown tensor": (renamed(NORM, "blk.0.attn_sinks.weight"), ("attn_sinks", "unknown")),
    "a tensor of an unknown layer": (renamed(QUERY, "blk.7.attn_q.weight"), ("layers.0.self_attn.q_proj",)),
    "a layer of a million digits": (renamed(QUERY, f"blk.{'9' * 10**6}.attn_q.weight"), ("is unknown",)),
    "a name not printable": (renamed(QUERY, "\n\x1b[2J"), (r"\n\x1b[2J",)),
    "a missing tensor": (renamed(NORM, None), ("tensor",)),
    "data cut": (lambda p: setattr(p, "data", p.data[:-64]), ("cut short: tensor",)),
    "no data": (assign(data=b""), ("cut short: tensor",)),
    "bytes behind the data": (
        lambda p: setattr(p, "data", p.data + bytes(100)),
        ("100 bytes after the last tensor",),
    ),
    "rope factors of a scaling nobody uses": (renamed(NORM, "rope_freqs.weight"), ("rope_freqs.weight",)),
}

ATTACKS = {
    f"{group}: {name}": attack
    for group, table in {
        "counts": COUNTS, "values": VALUES, "tensors": TENSORS, "settings": SETTINGS, "tokenizer": TOKENIZER
    }.items()
    for name, attack in table.items()
}  # fmt: skip
