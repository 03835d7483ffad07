"""KV cache, rows, memory plan, the decode loop, stop conditions, statistics."""
