"""Partial gradients that are stored: dq has its own block of keys."""

from dataclasses import replace

import numpy as np

from oracles.dot_product import scaled_dot_product_attention_vjp
from oracles.formats import preset
from oracles.tests.simulated.attention import Kernel
from oracles.tests.simulated.forms import any_form
from oracles.tests.simulated.rounding import rounding

STORED = preset("bfloat16-stored-gradients")


def _arrays(rng, n_q, n_k, d):
    return [rounding(STORED.inputs)(rng.standard_normal((n, d))) for n in (n_q, n_k, n_k, n_q)]


def test_partial_gradients_of_queries_and_of_keys_have_blocks_of_their_own():
    rng = np.random.default_rng(0)
    a = replace(STORED, name="4 and 16", grad_block=4, grad_block_of_keys=16)
    q, k, v, g = _arrays(rng, 9, 40, 4)
    narrow, wide, once = (
        scaled_dot_product_attention_vjp(
            q, k, v, None, g, arithmetic=replace(a, name=str(block), grad_block_of_keys=block)
        )
        for block in (16, None, 40)
    )
    assert (once[0].rad < narrow[0].rad).all()
    assert (narrow[0].rad < wide[0].rad).all()
    for seed in range(4):
        results = Kernel(any_form(a, rng), a, 0.5, None, seed).vjp(q, k, v, g)[1:]
        assert all(x.excess(result).max() <= 1 for x, result in zip(narrow, results, strict=True))


def test_stored_gradients_say_something_at_4096_keys():
    q, k, v, g = _arrays(np.random.default_rng(0), 4, 4096, 64)
    dq, dk, _ = scaled_dot_product_attention_vjp(q, k, v, None, g, arithmetic=STORED)
    assert not dq.vacuous
    assert np.median(dq.rad) < 0.8 * np.abs(dq.mid).mean()
    assert np.median(dk.rad) < 0.1 * np.abs(dk.mid).mean()
