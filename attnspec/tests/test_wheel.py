"""The wheel has the product alone: what it holds, and that it works without a checkout."""

import io
import subprocess
import tokenize
import zipfile

WRONG = """
import numpy as np

def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    highest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(highest), 0.0, highest))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0) @ v
"""


def test_the_wheel_holds_four_packages_without_tests_and_without_tools_of_maintainers(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "attnspec",
        "oracles",
        "properties",
        "spec",
    }
    assert not [name for name in names if "tests" in name.split("/")]
    assert not [
        name
        for name in names
        if name.endswith(("choosing.py", "kills.py", "matrix.py", "chosen.json")) and "vectors" in name
    ]
    kept = {name.rpartition(".")[2] for name in names if ".dist-info/" not in name}
    assert kept == {"py", "typed", "json", "html", "css", "js"}


def test_the_wheel_is_light(wheel):
    """The wheel has at most 550,500 tokens of Python: shorter lines and longer names make it no heavier."""
    with zipfile.ZipFile(wheel) as file:
        texts = [file.read(name).decode() for name in file.namelist() if name.endswith(".py")]
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
    lines = [io.StringIO(text).readline for text in texts]
    assert sum(token.type not in layout for line in lines for token in tokenize.generate_tokens(line)) <= 550_500


def test_the_wheel_alone_gives_a_verdict(installed, tmp_path):
    (tmp_path / "kernels.py").write_text(WRONG)
    line = [installed / "attnspec", "verify", "kernels.py", "--quick"]
    ran = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "likely cause: sdpa-scale-missing\n" in ran.stdout


def test_nothing_of_the_checkout_is_needed_or_found(installed, tmp_path):
    code = "import importlib.util as u; print([n for n in ('systems', 'research', 'docs') if u.find_spec(n)])"
    ran = subprocess.run([installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
