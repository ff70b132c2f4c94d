"""Whole decoders of transformers, tiny and without trained weights: paths of one model that must
agree, one path in a row.

attnspec has no certified value for a whole model. Both paths compute the same real function in
float32 with different roundings of intermediate results. If all roundings come from sums, each path
is the exact function of parameters with relative errors of at most n·u, where u is 2⁻²⁴ and n is
the number of terms of the longest sum. The effect of the parameters on the logits is measured:
`DRAWS` times all parameters are multiplied by factors from 1 − ε to 1 + ε, ε = 2⁻¹², and D is the
largest change of a logit. Two paths may then differ by 2·n·u·D/ε. The bound is `MARGIN` times as
large, because D is measured in few directions, and because norms, exponentials and rotations round
too. This bound is not proved.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEVIATIONS", "MARGIN", "MODELS", "PATHS", "Compared", "Model", "compared"]

DRAWS, EPSILON, MARGIN, LENGTH = 4, 2.0**-12, 8, 12
_WIDTH, _VOCABULARY = 16, 32


@dataclass(frozen=True)
class Model:
    """A decoder: the class and the options of its configuration.

    `positions` says whether padded calls must give positions, `cache` is the keyword of its cache.
    """

    name: str
    config: str
    options: dict[str, Any] = field(default_factory=dict)
    positions: bool = False
    cache: str = "past_key_values"

    def make(self, path: str) -> Any:
        """The model with attention by a path, and parameters from seed 0."""
        import torch
        import transformers

        heads = {
            "hidden_size": _WIDTH,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "vocab_size": _VOCABULARY,
            "pad_token_id": 0,
        }
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = getattr(transformers, self.config)(**heads | self.options)
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=path).eval()
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.5)
        return model


def _ids(rows: int = 2) -> Any:
    import torch

    return (torch.arange(rows * LENGTH).reshape(rows, LENGTH) * 7 + 3) % (_VOCABULARY - 3) + 3


def _plain(model: Model, path: str = "eager", **options: Any) -> Any:
    return model.make(path)(_ids(), **options).logits


def _compiled(model: Model) -> Any:
    """The logits with flex attention, which PyTorch compiles for each model."""
    import torch

    with torch._dynamo.config.patch(recompile_limit=_PROGRAMS):
        return _plain(model, "flex_attention")


def _in_parts(model: Model, sizes: tuple[int, ...]) -> Any:
    """The logits for tokens given in parts, each part with the cache of the parts before."""
    import torch

    made, cache, logits = model.make("eager"), None, []
    for part in _ids().split(sizes, dim=1):
        out = made(part, use_cache=True, **{model.cache: cache})
        if model.cache not in out:
            raise ValueError(f"{model.name} returns no {model.cache}.")
        cache = out[model.cache]
        logits.append(out.logits)
    return torch.cat(logits, 1)


def _padded(model: Model, path: str) -> Any:
    """The logits of the tokens after three tokens of padding."""
    import torch

    ids, padding = _ids(), torch.full((2, 3), 5)
    mask = torch.cat([0 * padding, torch.ones_like(ids)], 1)
    options = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if model.positions else {}
    return model.make(path)(torch.cat([padding, ids], 1), attention_mask=mask, **options).logits[:, 3:]


def _alone(model: Model) -> Any:
    import torch

    made = model.make("eager")
    return torch.cat([made(row[None]).logits for row in _ids()])


_PROGRAMS = 64  # for all models; by default 8: PyTorch does not compile more

PATHS: dict[str, Callable[[Model], Any]] = {
    "sdpa": lambda model: _plain(model, "sdpa"),
    "flex": _compiled,
    "output_attentions": lambda model: _plain(model, output_attentions=True),
    "output_attentions under sdpa": lambda model: _plain(model, "sdpa", output_attentions=True),
    "one token after another": lambda model: _in_parts(model, (LENGTH - 4, 1, 1, 1, 1)),
    "chunks": lambda model: _in_parts(model, (5, 4, 3)),
    "left padding": lambda model: _padded(model, "eager"),
    "left padding under sdpa": lambda model: _padded(model, "sdpa"),
    "each sequence alone": _alone,
}
"""The paths that must give the logits of the eager path on the whole sequences."""

_MLP = {"intermediate_size": 32, "num_key_value_heads": 1, "max_position_embeddings": 64}
_HEAD = _MLP | {"head_dim": 8}
_SLIDING = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8}
_LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 2,
}

MODELS = [
    Model("Llama", "LlamaConfig", _MLP),
    Model("Mistral, a window of 4", "MistralConfig", _MLP | {"sliding_window": 4}),
    Model("Qwen2", "Qwen2Config", _MLP),
    Model("Qwen3", "Qwen3Config", _HEAD),
    Model("Gemma 2", "Gemma2Config", _HEAD | _SLIDING),
    Model("Gemma 3", "Gemma3TextConfig", _HEAD | _SLIDING),
    Model("Cohere2", "Cohere2Config", _MLP | _SLIDING),
    Model("GPT-OSS", "GptOssConfig", _HEAD | _SLIDING | _EXPERTS),
    Model(
        "Llama 4, chunks of 4",
        "Llama4TextConfig",
        _HEAD | {"attention_chunk_size": 4, "intermediate_size_mlp": 32, "moe_layers": []},
    ),
    Model("Phi-3", "Phi3Config", _MLP),
    Model("OLMo 2", "Olmo2Config", _MLP),
    Model("DeepSeek-V3", "DeepseekV3Config", _LATENT | {"intermediate_size": 32, "num_key_value_heads": 2}),
    Model("GPT-NeoX", "GPTNeoXConfig", {"intermediate_size": 32}),
    Model("GPT-2", "GPT2Config", {}, positions=True),
    Model("OPT", "OPTConfig", {"ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": _WIDTH}),
    Model("BLOOM", "BloomConfig", {}),
    Model("Falcon", "FalconConfig", {"alibi": False}),
    Model("Falcon, ALiBi", "FalconConfig", {"alibi": True}),
    Model("Mamba", "MambaConfig", {"state_size": 4}, cache="cache_params"),
    Model(
        "Mamba 2",
        "Mamba2Config",
        {"num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1, "chunk_size": 4},
        cache="cache_params",
    ),
    Model(
        "Jamba",
        "JambaConfig",
        _MLP
        | {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 1,
            "num_experts_per_tok": 1,
            "mamba_dt_rank": 2,
        },
    ),
    Model("Bamba", "BambaConfig", _MLP | _MAMBA | {"attn_layer_indices": [1]}),
    Model("MiniMax", "MiniMaxConfig", _HEAD | _EXPERTS | {"layer_types": ["linear_attention", "full_attention"]}),
    Model(
        "RecurrentGemma",
        "RecurrentGemmaConfig",
        _HEAD | {"lru_width": 16, "attention_window_size": 4, "num_hidden_layers": 3},
    ),
]

_FORGETS = "{} forgets its recurrent state where more than one token follows a cache"
_MINIMAX = "MiniMax counts positions from 0 in each call where its first layer is linear"
_BAMBA = "Bamba counts positions from 0 in each call, whatever its cache holds"
_PADDING = "RecurrentGemma lets padding into its recurrent state"
_CHUNKED = "A chunked mask of two sequences cannot be compiled for flex attention on a CPU"
_ALIBI = "Falcon with ALiBi adds it twice on the eager path"
DEVIATIONS = {
    ("Llama 4, chunks of 4", "flex"): _CHUNKED,
    ("Falcon", "output_attentions under sdpa"): "Falcon with output_attentions under sdpa is not causal",
    ("Falcon, ALiBi", "sdpa"): _ALIBI,
    ("Falcon, ALiBi", "left padding under sdpa"): _ALIBI,
    ("Mamba", "chunks"): _FORGETS.format("Mamba"),
    ("Jamba", "chunks"): _FORGETS.format("Jamba"),
    ("Bamba", "one token after another"): _BAMBA,
    ("Bamba", "chunks"): _BAMBA,
    ("MiniMax", "one token after another"): _MINIMAX,
    ("MiniMax", "chunks"): _MINIMAX,
    ("RecurrentGemma", "left padding"): _PADDING,
    ("RecurrentGemma", "left padding under sdpa"): _PADDING,
}
"""The paths that do not agree, each with the title of the finding that says why."""


@dataclass(frozen=True)
class Compared:
    """The largest difference of two paths, and its bound; `missing` says why the model lacks a
    path.
    """

    error: float = 0.0
    bound: float = 0.0
    missing: str = ""

    @property
    def ratio(self) -> float:
        """The error ÷ the bound."""
        return self.error / self.bound if self.error else 0.0

    @property
    def agree(self) -> bool:
        """Whether the difference is within the bound, or the model lacks the path."""
        return bool(self.missing) or self.error <= self.bound


def _moved(model: Model) -> Iterator[Any]:
    """The logits of the model, with parameters multiplied by random factors from 1 − ε to 1 + ε."""
    import torch

    generator = torch.Generator().manual_seed(1)
    for _ in range(DRAWS):
        made = model.make("eager")
        for parameter in made.parameters():
            parameter.mul_(1 + EPSILON * (2 * torch.rand(parameter.shape, generator=generator) - 1))
        yield made(_ids()).logits


def compared(model: Model) -> Iterator[tuple[str, Compared]]:
    """Each path of a model, by name, compared with the eager path on the whole sequences.

    A path is missing if the library raises ValueError for it. If it raises RuntimeError, the
    difference is ∞.
    """
    import torch

    with torch.no_grad():
        wanted = _plain(model)
        farthest = max(float((moved - wanted).abs().max()) for moved in _moved(model))
        terms = max(max(parameter.shape) for parameter in model.make("eager").parameters())
        bound = MARGIN * 2 * max(terms, LENGTH) * 2.0**-24 * farthest / EPSILON
        for path, run in PATHS.items():
            try:
                logits = run(model)
            except ValueError as error:
                yield path, Compared(missing=str(error).splitlines()[0])
            except RuntimeError:
                yield path, Compared(float("inf"), bound)
            else:
                yield path, Compared(float((logits - wanted).abs().max()), bound)
