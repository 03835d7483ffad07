"""What a hostile safetensors directory can do: name → (a function that breaks a directory, words its refusal must hold).

No words means that the mutation is harmless: the model loads with the tensors it had.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from edits import (
    FILE,
    FIRST,
    HUGE,
    INDEX,
    Attack,
    entry,
    grown,
    header,
    loop,
    moved,
    placed,
    raw,
    replaced,
    setting,
    shifted,
    written,
)

JSON_TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not valid JSON"),
    "spaces": (b" " * 64, "not valid JSON"),
    "a list": (b"[]", "expected a JSON object"),
    "null": (b"null", "expected a JSON object"),
    "deep lists": (b'{"a":' + b"[" * 100_000, "not valid JSON"),
    "deep objects": (b'{"a":' * 100_000, "not valid JSON"),
    "a huge integer": (b'{"a":' + b"9" * 100_000 + b"}", "not valid JSON"),
    "not UTF-8": (b'{"\xff\xfe":1}', "not valid JSON"),
    "UTF-16": ('{"a":1}'.encode("utf-16"), "not valid JSON"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not valid JSON"),
    "rest behind the end": (b"{}{}", "not valid JSON"),
    "a key twice": (b'{"a":1,"a":2}', "'a' appears twice"),
    "a key twice among many": (
        b"{" + b",".join(b'"%d":0' % i for i in range(50_000)) + b',"49999":0}',
        "'49999' appears twice",
    ),
}

ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "dtype unknown": ({"dtype": "BF17"}, "unknown dtype 'BF17'"),
    "dtype a number": ({"dtype": 16}, "unknown dtype 16"),
    "dtype a list": ({"dtype": ["BF16"]}, "unknown dtype ['BF16']"),
    "dtype wider": ({"dtype": "F32"}, "takes 24576 bytes"),
    "dtype fp16": ({"dtype": "F16"}, "--to-bf16"),
    "dtype integer": ({"dtype": "U16"}, "is U16, expected BF16"),
    "shape transposed": ({"shape": [64, 96]}, "by the config it is [96, 64]"),
    "shape smaller": ({"shape": [96, 63]}, "takes 12096 bytes"),
    "shape negative": ({"shape": [-96, -64]}, "shape [-96, -64]"),
    "shape boolean": ({"shape": [True, 6144]}, "shape [True, 6144]"),
    "shape float": ({"shape": [96.0, 64]}, "shape [96.0, 64]"),
    "shape NaN": ({"shape": [float("nan"), 64]}, "shape [nan, 64]"),
    "shape text": ({"shape": "96x64"}, "shape '96x64'"),
    "shape null": ({"shape": None}, "shape None"),
    "shape nested": ({"shape": [[96, 64]]}, "shape [[96, 64]]"),
    "shape too large for 64 bits": ({"shape": [2**63, 64]}, "shape [9223372036854775808, 64]"),
    "shape whose product wraps to 0": ({"shape": [2**32, 2**32]}, "too large"),
    "shape whose product wraps to the size": ({"shape": [2**62 + 96 * 16, 4]}, "too large"),
    "shape of rank 9": ({"shape": [1] * 7 + [96, 64]}, "at most 8 sizes"),
    "shape of rank 3": ({"shape": [1, 96, 64]}, "by the config it is [96, 64]"),
    "shape empty": ({"shape": []}, "takes 2 bytes"),
    "offsets reversed": ({"data_offsets": [12288, 0]}, "span -12288"),
    "offsets negative": ({"data_offsets": [-12288, 0]}, "[-12288, 0] are not two positions"),
    "offsets of wrong span": ({"data_offsets": [0, 12290]}, "span 12290"),
    "offsets three": ({"data_offsets": [0, 12288, 0]}, "are not two positions"),
    "offsets float": ({"data_offsets": [0.0, 12288.0]}, "are not two positions"),
    "offsets boolean": ({"data_offsets": [False, 12288]}, "are not two positions"),
    "offsets too large for 64 bits": ({"data_offsets": [2**64, 2**64 + 12288]}, "are not two positions"),
    "one key more": ({"strides": [64, 1]}, "must hold dtype, shape and data_offsets"),
}

SINGLE: dict[str, Attack] = {
    **{f"header is {name}": (raw(text), (FILE, says)) for name, (text, says) in JSON_TEXTS.items()},
    **{f"config is {n}": (written("config.json", t), ("config.json", s)) for n, (t, s) in JSON_TEXTS.items()},
    **{name: (entry(**changes), (FIRST, says)) for name, (changes, says) in ENTRIES.items()},
    "empty file": (written(FILE, b""), (FILE, "0 bytes")),
    "length only": (written(FILE, bytes(8)), (FILE, "not valid JSON")),
    "length beyond the file": (raw(b"{}", 10**6), (FILE, "cut short in its header")),
    "length 2**63": (raw(b"{}", 2**63), (FILE, "declares a header of 9223372036854775808 bytes")),
    "length 2**64 - 1": (raw(b"{}", 2**64 - 1), (FILE, "declares a header of")),
    "length over the limit, in a file as long": (
        lambda d: (raw(b"{}", 10**8 + 1)(d), grown(d, 2 * 10**8)),
        (FILE, "the limit is 100000000"),
    ),
    "no tensors": (lambda d: (d / FILE).write_bytes(struct.pack("<Q", 2) + b"{}"), ("missing",)),
    "offsets out of file": (header(lambda h: shifted(h, 2**40)), (FILE, "leaves a hole before it")),
    "overlap": (header(lambda h: shifted(h, -2)), (FILE, "overlaps the tensor before it")),
    "hole": (header(lambda h: shifted(h, 2)), (FILE, "leaves a hole before it")),
    "two tensors on the same bytes": (
        header(lambda h: h.update({"copy.weight": h[FIRST]})),
        (FILE, "overlaps the tensor before it"),
    ),
    "bytes after the last tensor": (lambda d: grown(d, 1), (FILE, "1 bytes after the last tensor")),
    "last byte missing": (lambda d: grown(d, -1), (FILE, "cut short", "ends at byte")),
    "an entry that is a list": (header(lambda h: h.update(x=[1])), (FILE, "tensor x", "must hold dtype")),
    "an entry that is missing": (header(lambda h: h.pop(FIRST)), (FILE, "hole")),
    "metadata a list": (header(lambda h: h.update(__metadata__=[1])), (FILE, "__metadata__")),
    "metadata nested": (header(lambda h: h.update(__metadata__={"a": {}})), (FILE, "__metadata__")),
    "metadata null": (header(lambda h: h.update(__metadata__=None)), ()),
    "a tensor nobody asked for": (
        header(
            lambda h: h.update({"extra\n\x1b[2J": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}})
        ),
        (r"extra\n\x1b[2J",),
    ),
    "an empty tensor of a shape no tensor can have": (
        header(lambda h: h.update(x={"dtype": "BF16", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]})),
        (FILE, "tensor x", "too large"),
    ),
    "a name of a megabyte": (
        header(lambda h: h.update({"x" * 2**20: {"dtype": "BF17", "shape": [], "data_offsets": [0, 0]}})),
        (FILE, "xxxx"),
    ),
    "half a surrogate pair": (
        header(lambda h: h.update({"\ud800": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}})),
        (r"\ud800",),
    ),
    "the file is a directory": (replaced(FILE, Path.mkdir), (FILE,)),
    "the file is a pipe": (replaced(FILE, os.mkfifo), (FILE,)),
    "the file is a link to itself": (replaced(FILE, loop), (FILE,)),
    "the file is endless": (replaced(FILE, lambda p: p.symlink_to("/dev/zero")), (FILE,)),
    "config is a directory": (replaced("config.json", Path.mkdir), ("config.json",)),
    "config is a pipe": (replaced("config.json", os.mkfifo), ("config.json",)),
    "config is a link to itself": (replaced("config.json", loop), ("config.json",)),
    "config is too long": (lambda d: os.truncate(d / "config.json", 2**40), ("config.json", "limit")),
    "generation config is a pipe": (
        replaced("generation_config.json", os.mkfifo),
        ("generation_config.json",),
    ),
    "generation config is a directory": (
        replaced("generation_config.json", Path.mkdir),
        ("generation_config.json",),
    ),
    "generation config ends at text": (
        written("generation_config.json", '{"eos_token_id": "x"}'),
        ("eos_token_id of generation_config",),
    ),
    "index is a pipe": (replaced(INDEX, os.mkfifo), (INDEX,)),
    "tokenizer is a pipe": (replaced("tokenizer.json", os.mkfifo), ("tokenizer.json",)),
    "tokenizer is nothing": (written("tokenizer.json", "{}"), ("tokenizer",)),
    "tokenizer that brings its code": (
        lambda d: (
            (d / "evil.py").write_text("raise SystemExit('ran')"),
            (d / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.Evil", null]}}'),
        ),
        ("tokenizer", "trust_remote_code"),
    ),
    "tokenizer config is deep": (written("tokenizer_config.json", '{"a":' * 50_000), ("tokenizer",)),
    **{
        f"config has a huge {key}": (setting(**{key: HUGE - 1}), ("by the config it is",))
        for key in (
            "hidden_size",
            "intermediate_size",
            "vocab_size",
            "head_dim",
            "num_attention_heads",
        )
    },
    "architecture a list of lists": (setting(architectures=[["LlamaForCausalLM"]]), ("architecture",)),
    "config has a huge num_hidden_layers": (
        setting(num_hidden_layers=HUGE),
        (f"layers.{HUGE - 1}", "is missing"),
    ),
    "config has a huge max_position_embeddings": (setting(max_position_embeddings=HUGE), ()),
    "config has sizes beyond 32 bits": (setting(hidden_size=2**64), ("hidden_size",)),
    "quantized": (setting(quantization_config=[1, {"a": 2}]), ("quantized",)),
}

SHARDED: dict[str, Attack] = {
    **{
        f"index places a tensor in {name}": (placed(file), (INDEX, FIRST, "plain name"))
        for name, file in {
            "the directory above": "../model.safetensors",
            "an absolute path": "/etc/passwd",
            "a folder": "x/model.safetensors",
            "a detour": "x/../model.safetensors",
            "the directory above itself": "..",
            "the directory itself": ".",
            "an empty name": "",
            "a NUL": "a\0b",
            "a directory of that name": "x.safetensors/",
            "a number": 5,
            "null": None,
            "a list": ["model.safetensors"],
        }.items()
    },
    "index places a tensor in a missing file": (placed("gone.safetensors"), ("gone.safetensors is missing",)),
    "index places a tensor in a name too long": (placed("x" * 300 + ".safetensors"), ("xxx", "is missing")),
    "index places a tensor in half a surrogate pair": (
        placed("\udc80.safetensors"),
        (r"\udc80.safetensors is missing",),
    ),
    "index places a tensor in itself": (placed(INDEX), (INDEX, "plain name")),
    "index places a tensor in config.json": (placed("config.json"), ("config.json", "plain name")),
    "index places a tensor in the wrong shard": (
        lambda d: placed(sorted(p.name for p in d.glob("*.safetensors"))[-1])(d),
        (FIRST, "is missing, though"),
    ),
    "index is a list": (written(INDEX, '{"weight_map": []}'), (INDEX, "weight_map")),
    "index is empty": (written(INDEX, "{}"), (INDEX, "weight_map")),
    "index is not JSON": (written(INDEX, "{"), (INDEX, "not valid JSON")),
    "index is a link to itself": (replaced(INDEX, loop), (INDEX,)),
    "index is a directory": (replaced(INDEX, Path.mkdir), (INDEX,)),
    "a shard is missing": (lambda d: next(d.glob("model-00001*")).unlink(), ("model-00001", "is missing")),
    "a shard is empty": (lambda d: os.truncate(next(d.glob("model-00001*")), 0), ("model-00001", "0 bytes")),
    "a shard is a link to itself": (
        lambda d: replaced(next(d.glob("model-00001*")).name, loop)(d),
        ("model-00001", "is missing"),
    ),
    "a shard is a link elsewhere": (lambda d: moved(d, "blobs"), ()),
    "two shards are one file": (
        lambda d: next(d.glob("model-00002*")).write_bytes(next(d.glob("model-00001*")).read_bytes()),
        ("model-00002", "is missing, though"),
    ),
}
