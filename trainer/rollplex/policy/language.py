"""The language model on Megatron-Core modules."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig

from rollplex.api.shapes import ModelShape
from rollplex.policy.attention import BoundaryAttention


def ensure_model_parallel() -> None:
    """Have a process group and Megatron's groups: those of the launcher, else a world of this one process."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)


def megatron_config(shape: ModelShape, dtype: torch.dtype) -> TransformerConfig:
    """The decoder of a shape's family for Megatron-Core.

    Megatron's own recompute stays off: it is reentrant, and reentrant checkpointing loses the gradients of boundary KV
    silently, with a correct loss. Recompute is ours (:mod:`rollplex.policy.passes`).
    """
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_query_groups=shape.kv_heads,
        kv_channels=shape.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=shape.norm_epsilon,
        gated_linear_unit=True,
        activation_func=F.silu,
        add_bias_linear=False,
        add_qkv_bias=shape.family.qkv_bias,
        qk_layernorm=shape.family.qk_norm,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        perform_initialization=False,
        params_dtype=dtype,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
    )


def build_language(shape: ModelShape, dtype: torch.dtype) -> GPTModel:
    """A GPTModel with uninitialised weights and the boundary core attention; its own forward is never called."""
    ensure_model_parallel()
    config = megatron_config(shape, dtype)
    assert config.recompute_granularity is None
    spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=shape.family.qk_norm)
    spec.submodules.self_attention.submodules.core_attention = BoundaryAttention
    model: GPTModel = GPTModel(
        config,
        spec,
        vocab_size=shape.vocabulary,
        max_sequence_length=shape.max_positions,
        parallel_output=True,
        share_embeddings_and_output_weights=shape.tied_embeddings,
        position_embedding_type="none",  # angles come from rollplex.policy.rope with every pass
    )
    return model.to(dtype)  # params_dtype leaves the norms in float32, but the engine reads the same bytes
