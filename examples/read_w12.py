"""Reads a w12 file with numpy alone, as docs/format.md describes it.   python examples/read_w12.py FILE [TENSOR …]"""

import json
import struct
import sys
import zlib

import numpy as np

NUMPY = {"U8": "<u1", "U16": "<u2", "U32": "<u4", "BF16": "<u2"}  # numpy has no bf16: its bits


def unpack(low, high, base, exc_pos, exc_val, shape):
    """The bf16 patterns of a packed weight: uint16 of the given shape [..., N, K]."""
    n, k = shape[-2:]
    nibble = np.stack([high & 15, high >> 4], axis=-1).reshape(len(low), -1)[:, :k].astype(np.uint16)
    bits = (nibble & 8) << 12 | (nibble & 7) << 8 | low  # sign, code in the exponent's place, mantissa
    row_base = base.reshape(-1, -(-n // 16)).repeat(16, axis=1)[:, :n].reshape(-1, 1).astype(np.uint16)
    bits += np.where(bits & 0x7F80, row_base << 7, 0).astype(np.uint16)  # code 0 is a zero
    bits.reshape(-1)[exc_pos] = exc_val
    return bits.reshape(shape)


def read(path, wanted=()):
    """Yields (name, array) for the wanted tensors, all if none are named; bf16 as bits, other types as bytes."""
    with open(path, "rb") as file:
        start = 8 + struct.unpack("<Q", file.read(8))[0]
        stored = json.loads(file.read(start - 8))
        metadata = stored.pop("__metadata__", {})
        if metadata.get("specpilot_w12") != "1":
            sys.exit(f"{path}: not a w12 file of version 1")

        def array(name):
            begin, end = stored[name]["data_offsets"]
            file.seek(start + begin)
            kind = NUMPY.get(stored[name]["dtype"])
            data = np.frombuffer(file.read(end - begin), kind or "u1")
            return data.reshape(stored[name]["shape"]) if kind else data

        original = json.loads(metadata["w12_header"])  # the header of the file that was packed
        checksums = json.loads(metadata["w12_crc32"])
        for name, info in original.items():
            if name == "__metadata__" or wanted and name not in wanted:
                continue
            if name in stored:
                value = array(name)
            else:
                fields = ("low", "high", "base", "exc_pos", "exc_val")
                value = unpack(*(array(f"{name}.w12_{field}") for field in fields), info["shape"])
            if f"{zlib.crc32(np.ascontiguousarray(value)):08x}" != checksums[name]:
                sys.exit(f"{path}: tensor {name} is damaged")
            yield name, value


if __name__ == "__main__":
    for name, value in read(sys.argv[1], sys.argv[2:]):
        floats = (value.astype(np.uint32) << 16).view(np.float32) if value.dtype == np.uint16 else value
        print(name, list(value.shape), floats.reshape(-1)[:4])
