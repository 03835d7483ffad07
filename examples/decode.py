"""Decode prompts and look at what came out.   python examples/decode.py [target] [drafter]

Without arguments: the default model, fetched on first use, and its drafter. A target is a directory, a .gguf file or a Hub name.
"""

import sys

import specpilot

target = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
drafter = sys.argv[2] if len(sys.argv) > 2 else "auto"  # the one known for this target, if there is one

# One call does it all. The engine is kept, so that the next call with the same model loads nothing.
result = specpilot.decode("Explain why the sky is blue.", target, drafter, max_new_tokens=64)
print(result.text)
print(
    f"{result.stats.tokens_per_second:.1f} tok/s, {result.stats.tau:.2f} tokens a pass, {result.finish_reason}"
)

# A list of prompts gives a list of results. A prompt may be a string, a list of messages, or token ids.
prompts = ["Name three colours.", [{"role": "user", "content": "Name three animals."}], result.prompt_tokens]
for other in specpilot.decode(prompts, target, drafter, max_new_tokens=32, stop=["\n\n"]):
    print(f"{len(other.tokens)} tokens: {other.text!r}")

# Speculation changes no token: one at a time gives the very same ones.
ar = specpilot.decode("Explain why the sky is blue.", target, drafter, max_new_tokens=64, verify="ar")
print("the same tokens without speculation:", ar.tokens == result.tokens)
