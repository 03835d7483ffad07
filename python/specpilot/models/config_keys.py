"""The config.json keys this engine knows, beside `layer_types` and Qwen3's idle window keys (config.py)."""

from __future__ import annotations

from typing import Any

READ = frozenset(
    """
    architectures vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
    num_key_value_heads head_dim max_position_embeddings rms_norm_eps tie_word_embeddings attention_bias
    mlp_bias eos_token_id dtype torch_dtype rope_parameters rope_theta rope_scaling
    """.split()
)

# What a forward pass does not see: bookkeeping, training, generation defaults, other tools' notes.
HARMLESS = frozenset(
    """
    model_type transformers_version _name_or_path _commit_hash auto_map tokenizer_class prefix finetuning_task
    task_specific_params id2label label2id num_labels problem_type
    use_cache initializer_range attention_dropout hidden_dropout resid_pdrop dropout
    output_attentions output_hidden_states output_scores return_dict return_dict_in_generate
    attn_implementation _attn_implementation _attn_implementation_autoset _attn_implementation_internal
    torchscript use_bfloat16 tf_legacy_loss chunk_size_feed_forward low_cpu_mem_usage is_decoder
    bos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups num_return_sequences
    diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    quantization_config is_llama_config transformers.js_config unsloth_version unsloth_fixed
    """.split()
)

# Keys that change arithmetic, with the values at which they do not; null always means "not in use".
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "hidden_activation": ("silu", "swish"),
    "pretraining_tp": (1,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1, 1.0),
    "original_max_position_embeddings": (),
    "use_sliding_window": (False,),
    "sliding_window": (),
    "max_window_layers": (),
    "sliding_window_pattern": (),
    "attention_chunk_size": (),
    "no_rope_layers": (),
    "no_rope_layer_interval": (),
    "attn_temperature_tuning": (False,),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "query_pre_attn_scalar": (),
    "attention_multiplier": (),
    "embedding_multiplier": (1, 1.0),
    "residual_multiplier": (1, 1.0),
    "logits_scaling": (1, 1.0),
    "logit_scale": (1, 1.0),
    "scale_emb": (1, 1.0),
    "scale_depth": (),
    "clip_qkv": (),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "use_bias": (False,),
    "parallel_residual": (False,),
    "num_experts": (0,),
    "num_local_experts": (0,),
    "num_experts_per_tok": (0,),
    "moe_intermediate_size": (),
    "is_encoder_decoder": (False,),
    "tie_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (),
    "pruned_heads": ({},),
}
