"""transformers: paths of one model that give different numbers, and masks and caches at their ends."""

import re

from research.findings.shown import Shown

__all__ = ["FINDINGS"]

_TINY = """import torch
from transformers import AutoModelForCausalLM, {config}

torch.manual_seed(0)
tiny = dict(vocab_size=32, hidden_size=16, num_hidden_layers={layers}, num_attention_heads=2)
tiny |= dict(
    {options},
)
model = AutoModelForCausalLM.from_config({config}(**tiny), attn_implementation="{path}"){dtype}.eval()
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.5)
"""
_MLP = "intermediate_size=16, num_key_value_heads=2"


def _model(config: str, options: str, layers: int = 1, path: str = "eager", dtype: str = "") -> str:
    each = ",\n    ".join(re.split(r", (?=\w+=)", options))
    return _TINY.format(config=config, options=each, layers=layers, path=path, dtype=dtype)


def _in_chunks(config: str, options: str, sizes: str, cache: str = "past_key_values", layers: int = 1) -> str:
    """The script of a model that is given tokens in parts, and all at once; it prints by how much the last logits differ at most."""
    return (
        _model(config, options, layers)
        + f"""ids, kept, seen = torch.arange(1, 9)[None], None, 0
with torch.no_grad():
    for n in {sizes}:
        out = model(ids[:, seen : seen + n], {cache}=kept, use_cache=True)
        kept, seen = out.{cache}, seen + n
    print(round(float((out.logits - model(ids).logits[:, -n:]).abs().max()), 4))"""
    )


FINDINGS = [
    Shown(
        "transformers",
        "attention",
        "In float64 the eager path makes NaN of every token of a padded sequence",
        "defect",
        "The mask is the least number of float64, and the softmax is asked for in float32, where that is −∞: a padded query has no "
        "key left, and "
        "0·NaN in the next layer reaches all tokens. The same line stands in 234 files of models.",
        "transformers.models.llama.modeling_llama",
        "attn_weights = nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32).to(query.dtype)",
        "none found; related: huggingface/transformers#17306 (float16)",
        _model("LlamaConfig", _MLP, layers=2, dtype=".double()")
        + """ids, mask = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 1, 1]])
print(bool(model(ids, attention_mask=mask).logits[0, 1:].isfinite().all()))""",
        lambda: "True",
    ),
    Shown(
        "transformers",
        "caches",
        "A cache of keys without channels has no positions",
        "defect",
        "Whether a layer holds something is asked by the number of entries of its keys, and not by its length: the mask is made for the "
        "new positions alone, whatever the values are. In a static cache positions are counted.",
        "transformers.cache_utils",
        "if not self.is_initialized or self.keys.numel() == 0:",
        "none found",
        """import torch
from transformers.cache_utils import DynamicLayer, StaticLayer

found = []
for layer in (DynamicLayer(), StaticLayer(max_cache_len=2)):
    layer.update(torch.zeros(1, 1, 2, 0), torch.ones(1, 1, 2, 3))
    found.append(int(layer.get_seq_length()))
print(found)""",
        lambda: "[2, 2]",
    ),
    Shown(
        "transformers",
        "whole models",
        "A chunked mask of two sequences cannot be compiled for flex attention on a CPU",
        "defect",
        "The mask is built by a compiled program, and of the chunks of more than one sequence PyTorch's compiler writes C++ that is none: "
        "the branches of a condition have masks of two types. Llama 4 raises with it; of one sequence it is right.",
        "transformers.masking_utils",
        "return (kv_idx - left_padding[batch_idx]) // chunk_size == (q_idx - left_padding[batch_idx]) // chunk_size",
        "none found; another of these masks: pytorch/pytorch#143568 (closed)",
        """import torch
from transformers import masking_utils

found = []
for sequences in (1, 2):
    mask = masking_utils.chunked_causal_mask_function(4, torch.zeros(sequences, dtype=torch.long))
    found.append(int(masking_utils.flex_attention_mask(sequences, 12, 12, mask_function=mask).kv_num_blocks.sum()))
print(found)""",
        lambda: "[1, 2]",
    ),
    Shown(
        "transformers",
        "whole models",
        "Falcon with output_attentions under sdpa is not causal",
        "defect",
        "Under sdpa the mask is made of booleans, and with output_attentions the scores are formed by hand and the booleans added to "
        "them: a key "
        "that is allowed gets one more, and none is masked.",
        "transformers.models.falcon.modeling_falcon",
        "attention_scores = F.softmax(attention_scores + attention_mask, dim=-1",
        "none found; related: huggingface/transformers#30123, #30652 (closed)",
        _model("FalconConfig", "alibi=False", path="sdpa")
        + "out = model(torch.tensor([[1, 2]]), output_attentions=True)\nprint(round(float(out.attentions[0][0, 0, 0, 1]), 4))",
        lambda: 0.0,
    ),
    Shown(
        "transformers",
        "whole models",
        "Falcon with ALiBi adds it twice on the eager path",
        "defect",
        "The biases, over √d, are written into the mask for all paths. The eager one adds them to the scores too, before it scales "
        "them. sdpa adds "
        "them once.",
        "transformers.models.falcon.modeling_falcon",
        "attention_logits = attention_scores + alibi.view(batch_size, self.num_heads, 1, -1)",
        "none found; related: huggingface/transformers#29946 (closed)",
        """import torch
from transformers import AutoModelForCausalLM, FalconConfig

config = FalconConfig(vocab_size=32, hidden_size=2, num_hidden_layers=1, num_attention_heads=2, alibi=True)
model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
torch.nn.init.zeros_(model.transformer.h[0].self_attention.query_key_value.weight)
weights = model(torch.tensor([[1, 2]]), output_attentions=True).attentions[0]
print(round(float(weights[0, 0, 1].log().diff()), 4))""",
        lambda: 1 / 16,
    ),
    Shown(
        "transformers",
        "positions and biases",
        "Falcon's ALiBi counts keys in bfloat16: 257 is 256",
        "arithmetic",
        "The slope is rounded to bfloat16, and its product with the position is too, in a model of any type: neighbours beyond 256 "
        "have the same "
        "bias by pairs, beyond 512 by fours. BLOOM forms the same products in float32.",
        "transformers.models.falcon.modeling_falcon",
        "alibi = slopes[..., None].bfloat16() * arange_tensor",
        "none found",
        """import torch
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

biases = build_alibi_tensor(torch.ones(1, 260, dtype=torch.long), 8, torch.float32)[0, 0]
print([round(x, 4) for x in (2 * biases[256:259]).tolist()])""",
        lambda: [256, 257, 258],
    ),
    Shown(
        "transformers",
        "whole models",
        "Bamba counts positions from 0 in each call, whatever its cache holds",
        "defect",
        "Where position_ids are not given they are made of the length of the input alone; Llama and others add the length of the "
        "cache. A token "
        "that follows four is rotated as the first one.",
        "transformers.models.bamba.modeling_bamba",
        "position_ids = torch.arange(hidden_states.shape[1], device=hidden_states.device).unsqueeze(0)",
        "none found",
        _in_chunks(
            "BambaConfig",
            "intermediate_size=16, num_key_value_heads=2, attn_layer_indices=[0, 1], mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=1",
            "(7, 1)",
            layers=2,
        ),
        lambda: 0.0,
    ),
    Shown(
        "transformers",
        "whole models",
        "Mamba forgets its recurrent state where more than one token follows a cache",
        "defect",
        "One token takes the step from the state; several take the scan, which begins at zero, and whose end overwrites the state. "
        "Nothing is said. "
        "FalconMamba has the same lines; Mamba2 scans from the state.",
        "transformers.models.mamba.modeling_mamba",
        "scan_result = mamba_selective_scan(",
        "none found; of Mamba 2: huggingface/transformers#46032, #46741 (closed)",
        _in_chunks("MambaConfig", "state_size=4", "(4, 4)", "cache_params"),
        lambda: 0.0,
    ),
    Shown(
        "transformers",
        "whole models",
        "Jamba forgets its recurrent state where more than one token follows a cache",
        "defect",
        "As in Mamba: the scan over several tokens begins at zero, though its attention layers go on from the cache.",
        "transformers.models.jamba.modeling_jamba",
        "scan_result = mamba_selective_scan(",
        "none found; of Mamba 2: huggingface/transformers#46032, #46741 (closed)",
        _in_chunks(
            "JambaConfig",
            f"{_MLP}, attn_layer_period=2, attn_layer_offset=1, num_experts=1, num_experts_per_tok=1, mamba_d_state=4, mamba_dt_rank=2",
            "(4, 4)",
            layers=2,
        ),
        lambda: 0.0,
    ),
    Shown(
        "transformers",
        "whole models",
        "MiniMax counts positions from 0 in each call where its first layer is linear",
        "defect",
        "The length of the cache is read from layer 0, whose keys are empty where it is one of linear attention, as in "
        "MiniMax-Text-01: the next "
        "token is at position 0, and the mask is that of one key.",
        "transformers.models.minimax.modeling_minimax",
        "past_seen_tokens = past_key_values.get_seq_length() if past_key_values is not None else 0",
        "none found",
        _in_chunks(
            "MiniMaxConfig",
            f'{_MLP}, layer_types=["linear_attention", "full_attention"], num_local_experts=1, num_experts_per_tok=1',
            "(7, 1)",
            layers=2,
        ),
        lambda: 0.0,
    ),
    Shown(
        "transformers",
        "caches",
        "A sliding window of 1 keeps every key",
        "defect",
        "The last W − 1 keys are kept by the slice −W + 1:, which for W = 1 is 0:, all of them; the mask is made for none. One token "
        "at a time is "
        "given no mask, and attends to the whole past.",
        "transformers.cache_utils",
        "self.keys = full_key_states[:, :, -self.sliding_window + 1 :, :]",
        "none found",
        """import torch
from transformers.cache_utils import DynamicSlidingWindowLayer

layer, x = DynamicSlidingWindowLayer(sliding_window=1), torch.zeros(1, 1, 1, 2)
for _ in range(3):
    promised = layer.get_mask_sizes(1)[0]
    keys, _ = layer.update(x, x)
print([promised, keys.shape[-2]])""",
        lambda: "[1, 1]",
    ),
    Shown(
        "transformers",
        "whole models",
        "RecurrentGemma lets padding into its recurrent state",
        "defect",
        "A block of recurrence is handed the mask and does not read it. What stands on padded places changes the logits of the real "
        "tokens; Bamba, Jamba and "
        "Mamba make them zero first.",
        "transformers.models.recurrent_gemma.modeling_recurrent_gemma",
        "hidden_states, _ = self.temporal_block(",
        "none found",
        _model(
            "RecurrentGemmaConfig",
            "intermediate_size=32, num_key_value_heads=1, head_dim=8, lru_width=16, attention_window_size=8",
            layers=3,
        )
        + """mask = torch.tensor([[0, 1, 1]])
with torch.no_grad():
    one, other = (model(torch.tensor([[pad, 1, 2]]), attention_mask=mask).logits[:, 1:] for pad in (0, 5))
print(round(float((one - other).abs().max()), 4))""",
        lambda: 0.0,
    ),
]
"""What was found in models, in their caches, and in the functions that they share."""
