"""Native runtimes: the registry needs none of them, and what no law can ask of ggml is tested here."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import oracles
import properties
from properties.laws.twins import TWINS
from properties.verifier.plan import plan
from systems.native import GROUPS, recipes

NEEDS_GGML = pytest.mark.skipif(bool(recipes.unavailable("ggml")), reason=recipes.unavailable("ggml"))
MODULES = ("openvino", "paddle", "onnxruntime")
KEYS, PAIRS = 40, 32


def test_the_registry_imports_no_library():
    script = f"import sys\nimport systems.native\nprint([name for name in {MODULES} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_a_library_that_is_absent_says_how_to_fetch_it(monkeypatch):
    monkeypatch.setattr(recipes, "find_spec", lambda module: None)
    monkeypatch.setattr(recipes, "GGML", [recipes.GGML[0].with_name("no_such_file")])
    assert recipes.unavailable("ggml") == "ggml is not built: python -m systems.native ggml."
    assert recipes.unavailable("paddlepaddle") == (
        "paddlepaddle is not installed: python -m systems.native paddlepaddle."
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_small_share_of_a_library_is_judged_where_it_is_present(group):
    one = next((i for i in group if not i.unavailable), group[0])
    if one.unavailable:
        pytest.skip(one.unavailable)
    agreement = next(law.name for law in plan(one) if law.agreement)
    report = properties.verify(one, laws=[agreement, TWINS], max_examples=3)
    assert {outcome.status for outcome in report.outcomes} & {"held", "declared"}


@NEEDS_GGML
def test_flash_attention_of_quantised_keys_is_within_the_limit_of_float32_where_quantisation_is_exact():
    """Blocks of 32 whole numbers with 127 among them are exact in q8_0, and so are their products in float32."""
    from systems.native.ggml_attention import flash_attention

    generator = np.random.default_rng(0)
    q, k, v = generator.integers(-127, 128, (3, 1, 2, KEYS, 64)).astype(np.float32)
    for x in (q, k, v):
        x[..., ::32] = 127
    scale = 2.0**-12
    out = flash_attention(q, k, v, kind="q8_0", scale=scale)
    oracles.assert_within(out, oracles.attention(q, k, v, scale=scale, arithmetic="float32")[0])


@NEEDS_GGML
def test_yarn_rotates_by_the_frequencies_of_its_definition():
    """A frequency of ggml is off by two roundings for each earlier pair and five for the ramp: below 2⁻¹⁷."""
    from systems.native.ggml_rope import NORMAL, Yarn, rope

    model = {"factor": 4.0, "original_max_position_embeddings": 4096}
    rates, factor = oracles.rotary_frequencies("yarn", 2 * PAIRS, **model)
    x = np.random.default_rng(0).standard_normal((300, 2 * PAIRS)).astype(np.float32)
    out = rope(NORMAL, x, 100, yarn=Yarn(original_length=4096, frequency_scale=1 / 4, share=1.0))
    single = oracles.FLOAT32
    arithmetic = replace(single, name="YaRN", angle=replace(single.angle, product=2.0**-17))
    given = {"inv_freq": rates.mid, "attention_factor": factor.mid.item()}
    oracles.assert_within(out, oracles.rope(x, 100, **given, arithmetic=arithmetic))
    plain = oracles.rope(x, 100, arithmetic=arithmetic)
    assert plain.excess(out).max() > 1
