"""Tiny targets with a byte-level tokenizer and their drafters, as directories that ``specpilot.load`` takes; KV by position."""

from __future__ import annotations

import json
from pathlib import Path

import tiny_drafters
import tiny_targets
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCAB = 320  # the tokenizer knows fewer: the last ids are padding, as real vocabularies have it
MERGES = ["t h", "th e", "i n", "e r", "h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o"]
EOS = "<|end|>"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """A token a byte, a few merges, two special tokens, a chat template."""
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES)]
    merges = [tuple(m.split()) for m in MERGES]
    core = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=EOS, additional_special_tokens=["<|start|>"]
    )
    made.chat_template = TEMPLATE
    return made


def save_target(directory: Path, kind: str = "llama", text: bool = True, **changes) -> Path:
    """A random model that ``tiny_drafters`` may draft for."""
    changes = {"vocab_size": VOCAB, "num_hidden_layers": tiny_drafters.TARGET_LAYERS} | changes
    tiny_targets.save(tiny_targets.stock(kind, **changes), directory)
    if text:
        tokenizer().save_pretrained(directory)
    return directory


def save_drafter(directory: Path, **changes) -> Path:
    return tiny_drafters.save(tiny_drafters.stock(**({"vocab_size": VOCAB} | changes)), directory)


def edit(directory: Path, **changes) -> Path:
    """Changes keys of a saved config; None removes one."""
    path = directory / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return directory


def kv_at(cache, slots: torch.Tensor) -> torch.Tensor:
    """K and V of these slots, bf16 [2, layers, slots, kv heads, padded head width]; layout: csrc/ops/rope_kv/rope_kv.h."""
    layers, blocks, heads, _, half, _ = cache.k.shape
    k = cache.k.view(layers, blocks, heads, 2, half, 16, 2).permute(0, 1, 3, 5, 2, 4, 6)
    v = cache.v.view(layers, blocks, heads, 16, 2 * half, 2).permute(0, 1, 3, 5, 2, 4)
    both = torch.stack([x.reshape(layers, blocks * 32, heads, 2 * half) for x in (k, v)])
    return both[:, :, slots.long()]
