"""Rotary frequencies of released models: the numbers of their configurations, and the public file
that each was compared with.

This module defines nothing: its rows are arguments of `spec.extended.rotary_frequencies`, whose
parameters have the names that configurations give them. A model's `config.json` is the one
published with its weights, as public code quotes it.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["RELEASED", "Released"]


@dataclass(frozen=True)
class Released:
    """A model: its name, the source of its numbers, and the numbers.

    kind, head_dim, base, rotary_dim and parameters are arguments of `rotary_frequencies`, and
    max_position_embeddings is the longest sequence that the configuration names. sections and mrope
    say how pairs are distributed over three axes. module is the model of transformers that reads
    such a configuration.
    """

    name: str
    module: str
    source: str
    kind: str
    head_dim: int
    base: float
    max_position_embeddings: int
    parameters: dict[str, Any] = field(default_factory=dict)
    rotary_dim: int | None = None
    sections: tuple[int, int, int] | None = None
    mrope: Literal["sectioned", "interleaved"] = "sectioned"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `rotary_frequencies`."""
        own = {"max_position_embeddings": self.max_position_embeddings} if self.kind == "dynamic" else {}
        return (
            {"kind": self.kind, "head_dim": self.head_dim, "base": self.base, "rotary_dim": self.rotary_dim}
            | own
            | self.parameters
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Two sequence lengths, one on each side of the length at which the frequencies change. If
        they do not change, the longest length alone.
        """
        if self.kind == "longrope":
            switch = self.parameters["original_max_position_embeddings"]
            return (switch, switch + 1)
        longest = self.max_position_embeddings
        return (longest, 2 * longest) if self.kind == "dynamic" else (longest,)


_PHI_3_SHORT = [
    *([1.05] * 3 + [1.1] * 3 + [1.2500000000000002] * 2 + [1.4000000000000004, 1.4500000000000004, 1.5500000000000005]),
    *([1.8500000000000008, 1.9000000000000008] + [2.000000000000001] * 19 + [2.1000000000000005] * 2 + [2.2]),
    *(
        [2.3499999999999996] * 4
        + [2.3999999999999995] * 2
        + [2.6499999999999986, 2.6999999999999984, 2.8999999999999977]
    ),
    *([2.9499999999999975] + [3.049999999999997] * 3),
]
_PHI_3_LONG = [
    *(
        1.0299999713897705,
        1.0499999523162842,
        1.0499999523162842,
        1.0799999237060547,
        1.2299998998641968,
        1.2299998998641968,
    ),
    *(
        1.2999999523162842,
        1.4499999284744263,
        1.5999999046325684,
        1.6499998569488525,
        1.8999998569488525,
        2.859999895095825,
    ),
    *(3.68999981880188, 5.419999599456787, 5.489999771118164, 5.489999771118164, 9.09000015258789, 11.579999923706055),
    *(
        15.65999984741211,
        15.769999504089355,
        15.789999961853027,
        18.360000610351562,
        21.989999771118164,
        23.079999923706055,
    ),
    *(
        30.009998321533203,
        32.35000228881836,
        32.590003967285156,
        35.56000518798828,
        39.95000457763672,
        53.840003967285156,
    ),
    *(
        56.20000457763672,
        57.95000457763672,
        59.29000473022461,
        59.77000427246094,
        59.920005798339844,
        61.190006256103516,
    ),
    *(61.96000671386719, 62.50000762939453, 63.3700065612793, 63.48000717163086, 63.48000717163086, 63.66000747680664),
    *(63.850006103515625, 64.08000946044922, 64.760009765625, 64.80001068115234, 64.81001281738281, 64.81001281738281),
]


def _llama3(factor: float) -> dict[str, Any]:
    return {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def _yarn(factor: float, original: int, **others: Any) -> dict[str, Any]:
    return {
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    } | others


RELEASED = (
    Released("Llama 2 7B", "llama", "torchtune, `models/llama2`", "default", 128, 10000.0, 4096),
    Released(
        "Pythia 160M",
        "gpt_neox",
        "EleutherAI/pythia, `models/160M/pythia-160m.yml`",
        "default",
        64,
        10000.0,
        2048,
        rotary_dim=16,
    ),
    Released(
        "Vicuna 7B v1.5 16k",
        "llama",
        "lm-sys/FastChat, `docs/vicuna_weights_version.md` and `fastchat/train/train.py`",
        "linear",
        128,
        10000.0,
        16384,
        {"factor": 4.0},
    ),
    Released(
        "Gemma 3 4B, full attention",
        "gemma3",
        "google/gemma_pytorch, `gemma/config.py`",
        "linear",
        256,
        1e6,
        131072,
        {"factor": 8.0},
    ),
    Released("InternLM2 1.8B", "llama", "its `config.json`", "dynamic", 128, 1e6, 32768, {"factor": 2.0}),
    Released(
        "DeepSeek-V3",
        "deepseek_v3",
        "deepseek-ai/DeepSeek-V3, `inference/model.py`; its `config.json`",
        "yarn",
        64,
        10000.0,
        163840,
        _yarn(40.0, 4096, mscale=1.0, mscale_all_dim=1.0),
    ),
    Released(
        "Qwen2.5 7B, as its documentation extends it",
        "qwen2",
        "torchtune, `models/qwen2_5`; Qwen's documentation",
        "yarn",
        128,
        1e6,
        131072,
        _yarn(4.0, 32768),
    ),
    Released(
        "gpt-oss",
        "gpt_oss",
        "openai/gpt-oss, `gpt_oss/torch/model.py`",
        "yarn",
        64,
        150000.0,
        131072,
        _yarn(32.0, 4096, truncate=False),
    ),
    Released("Llama 3.1 8B", "llama", "torchtune, `models/llama3_1`", "llama3", 128, 500000.0, 131072, _llama3(8.0)),
    Released("Llama 3.2 1B", "llama", "torchtune, `models/llama3_2`", "llama3", 64, 500000.0, 131072, _llama3(32.0)),
    Released(
        "Phi-3-vision 128k",
        "phi3",
        "its `config.json`",
        "longrope",
        96,
        10000.0,
        131072,
        {
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "short_factor": _PHI_3_SHORT,
            "long_factor": _PHI_3_LONG,
        },
    ),
    Released(
        "Gemma 4, full attention",
        "gemma4",
        "the defaults of transformers 5.23's `Gemma4TextConfig`",
        "proportional",
        512,
        1e6,
        131072,
        {"partial_rotary_factor": 0.25},
    ),
    Released(
        "Qwen2-VL",
        "qwen2_vl",
        "transformers 5.23, `Qwen2VLTextConfig`; the `config.json` of Qwen2-VL-7B-Instruct",
        "default",
        128,
        1e6,
        32768,
        sections=(16, 24, 24),
    ),
    Released(
        "Qwen3-VL",
        "qwen3_vl",
        "the defaults of transformers 5.23's `Qwen3VLTextConfig`",
        "default",
        128,
        500000.0,
        128000,
        sections=(24, 20, 20),
        mrope="interleaved",
    ),
)
"""At least one model of each kind."""
