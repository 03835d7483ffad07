"""llama.cpp on the weights of our checkpoints: a bf16 GGUF, and greedy decoding by the low-level binding."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import torch

from specpilot.formats import Checkpoint

try:
    from llama_cpp import llama_cpp as lib
except ImportError as e:
    raise SystemExit(
        f"llama_cpp is not installed ({e}): pip install llama-cpp-python, then run this again"
    ) from None

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _interleave(w: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from halves (i, i + d/2) to neighbours (2i, 2i + 1), which llama.cpp rotates."""
    return w.view(heads, 2, -1, w.shape[1]).transpose(1, 2).reshape(w.shape)


def write_gguf(checkpoint: Checkpoint, path: Path) -> None:
    """A Llama checkpoint as bf16 GGUF without a tokenizer; norms in fp32, as llama.cpp wants them."""
    c = checkpoint.config
    if c.get("model_type") != "llama":
        raise SystemExit(
            f"{checkpoint.source}: model_type is {c.get('model_type')!r}; only llama is exported"
        )
    heads = {"self_attn.q_proj": c["num_attention_heads"], "self_attn.k_proj": c["num_key_value_heads"]}
    rope = c.get("rope_parameters") or c
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(c["vocab_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_rope_dimension_count(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    for name in checkpoint.names():
        if name == "lm_head.weight" and c.get("tie_word_embeddings"):
            continue
        w, stem = checkpoint.tensor(name), name.removesuffix(".weight")
        out = NAMES.get(stem)
        if out is None:
            _, _, layer, part = stem.split(".", 3)
            out = f"blk.{layer}.{LAYER_NAMES[part]}"
            w = _interleave(w, heads[part]) if part in heads else w
        if w.dim() == 1:
            writer.add_tensor(f"{out}.weight", w.float().numpy())
        else:
            data = w.contiguous().view(torch.uint8).numpy()
            writer.add_tensor(f"{out}.weight", data, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@lib.llama_log_callback
def _silent(level: int, text: bytes, user: object) -> None:
    pass


class LlamaCpp:
    """One sequence, greedy. Timed: llama_decode, and an argmax over its logits for every token."""

    def __init__(self, path: Path, context: int, threads: int) -> None:
        lib.llama_log_set(_silent, None)
        lib.llama_backend_init()
        self._model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = context
        params.n_threads = params.n_threads_batch = threads
        self._context = lib.llama_init_from_model(self._model, params)
        self._vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self._model))

    def system(self) -> str:
        """The instruction sets that this build of llama.cpp uses."""
        return lib.llama_print_system_info().decode().strip(" |")

    def _step(self, tokens: ctypes.Array) -> int:
        if lib.llama_decode(self._context, lib.llama_batch_get_one(tokens, len(tokens))):
            raise RuntimeError("llama_decode failed")
        logits = lib.llama_get_logits_ith(self._context, -1)
        return int(np.ctypeslib.as_array(logits, (self._vocab,)).argmax())

    def decode(
        self, prompt: Sequence[int], max_new_tokens: int, stop_ids: Sequence[int]
    ) -> tuple[list[int], float, float]:
        """Tokens, seconds of the prompt (first token included), seconds of the other tokens."""
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)
        started = time.perf_counter()
        tokens = [self._step((lib.llama_token * len(prompt))(*prompt))]
        first = time.perf_counter()
        feed = (lib.llama_token * 1)()
        while len(tokens) < max_new_tokens and tokens[-1] not in stop_ids:
            feed[0] = tokens[-1]
            tokens.append(self._step(feed))
        return tokens, first - started, time.perf_counter() - first
