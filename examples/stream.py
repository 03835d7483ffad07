"""Hold an engine and stream text as it comes.   python examples/stream.py [target] [drafter]"""

import sys

import specpilot

target = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
drafter = sys.argv[2] if len(sys.argv) > 2 else "auto"

# ``load`` gives an engine that you hold yourself; max_context bounds the memory of its KV cache.
engine = specpilot.load(target, drafter, max_context=512)

stream = engine.stream("Write one sentence about the sea.", max_new_tokens=64)
for piece in stream:  # whole characters only, and never the beginning of a stop string
    print(piece, end="", flush=True)
print()
print(stream.result.stats.line())  # whole once the iteration has ended

# A stream may be left early. Closing it frees the engine, and what came until then is its result.
stream = engine.stream("Write a long story.", max_new_tokens=200)
for count, _ in enumerate(stream, 1):
    if count == 5:
        break
stream.close()
print(f"{stream.result.finish_reason} after {len(stream.result.tokens)} tokens")
