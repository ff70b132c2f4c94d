"""The Lean file for TorchLean is evaluated without Lean: a small parser reads its terms, the README states the
interface, and the corrected definitions of `spec` over FLOAT64 compute the results.
"""

import importlib
import inspect
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from spec import attention, corrected, positional_encoding
from spec.context import FLOAT64

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "integrations/torchlean"
TEXT = (FOLDER / "CertifiedVectors.lean").read_text("utf-8")
README = (FOLDER / "README.md").read_text("utf-8")

INTERFACE = {
    name: words.split() for name, words in re.findall(r"^\| `Spec\.([\w.]+)` \| `([^`]+)` \|", README, re.MULTILINE)
}
"""The arguments of each declaration in order, or the fields of a structure, as the README states them."""

STRUCTURES = {
    "AttentionContext": (("Q", "K", "V", "mask"), attention.AttentionContext),
    "MultiHeadAttention": (("queryWeight", "keyWeight", "valueWeight", "outputWeight"), attention.MultiHeadAttention),
    "PositionalEncodingSpec": (("pos",), positional_encoding.PositionalEncodingSpec),
}

CORRECTED = {
    "hardMaskedSoftmaxSpec": lambda scores, mask: corrected.hard_masked_softmax(scores, mask, FLOAT64),
    "scaledDotProductAttention": lambda ctx: corrected.scaled_dot_product_attention(ctx),
    "scaledDotProductAttentionBackward": lambda ctx, dOut: corrected.scaled_dot_product_attention_backward(ctx, dOut),
    "scaledDotProductAttentionJvp": corrected.scaled_dot_product_attention_jvp,
    "MultiHeadAttention.forward": lambda n, h1, mha, x, mask: corrected.multi_head_attention_forward(mha, x, mask),
    "multiHeadAttentionBackward": lambda h1, mha, x, mask, gradOutput: corrected.multi_head_attention_backward(
        mha, x, mask, gradOutput
    ),
    "multiHeadAttentionJvp": lambda h1, mha, dmha, x, dx, mask: corrected.multi_head_attention_jvp(
        mha, dmha, x, dx, mask
    ),
    "addPositionalEncodingSpec": positional_encoding.add_positional_encoding_spec,
    "sinusoidalPositionalEncodingSpec": lambda seqLen, embedDim, startPos: (
        positional_encoding.sinusoidal_positional_encoding_spec(seqLen, embedDim, startPos, FLOAT64)
    ),
    "ropeApplySpec": lambda x, startPos: corrected.rope_apply(x, startPos, FLOAT64),
}

SEED = CORRECTED | {
    "hardMaskedSoftmaxSpec": lambda scores, mask: attention.hard_masked_softmax_spec(scores, mask, FLOAT64),
    "scaledDotProductAttention": attention.scaled_dot_product_attention,
    "scaledDotProductAttentionBackward": attention.scaled_dot_product_attention_backward,
    "scaledDotProductAttentionJvp": attention.scaled_dot_product_attention_jvp,
    "MultiHeadAttention.forward": lambda n, h1, mha, x, mask: mha.forward(x, mask),
    "multiHeadAttentionBackward": lambda h1, mha, x, mask, gradOutput: attention.multi_head_attention_backward(
        mha, x, mask, gradOutput
    ),
    "multiHeadAttentionJvp": lambda h1, mha, dmha, x, dx, mask: attention.multi_head_attention_jvp(
        mha, dmha, x, dx, mask
    ),
    "ropeApplySpec": lambda x, startPos: positional_encoding.rope_apply_spec(x, startPos, FLOAT64),
}
"""The definitions at the seed revision, where they differ."""


# -- Reading Lean's terms --------------------------------------------------------------------------


TOKEN = re.compile(r'"[^"]*"|#\[[^\]]*\]|:=|[{}():,]|[^\s{}():,]+')
CLOSING = (")", "}", ",", ":", ":=")


class Terms:
    """The terms of one check, evaluated from left to right."""

    def __init__(self, text, names, definitions):
        self.tokens, self.names, self.definitions = TOKEN.findall(text), names, definitions

    def next(self, wanted=None):
        token = self.tokens.pop(0)
        assert wanted in (None, token), f"{token} stands where {wanted} should."
        return token

    def applied(self):
        """The value of a term, or the head and the arguments of a declaration of TorchLean."""
        head, arguments = self.atom(), []
        while self.tokens and self.tokens[0] not in CLOSING:
            arguments.append(self.atom())
        if not arguments:
            return head
        if isinstance(head, int):
            times, factor = arguments
            assert times == "*"
            return head * factor
        if head == "some":
            (head,) = arguments
            return head
        if head in ("numbers", "booleans"):
            rows, columns, entries = arguments
            return (bits if head == "numbers" else truths)(entries).reshape(rows, columns)
        return head, arguments

    def atom(self):
        """The value of a term that needs no parentheses."""
        token = self.next()
        if token == "(":
            return self.parenthesised()
        if token == "{":
            return self.fields()
        if token.startswith(("#", '"')):
            return token
        if token.isdigit():
            return int(token)
        first, *parts = token.split(".")
        if first in self.names and first != "Spec":
            return part(self.names[first], parts)
        return None if token == "none" else token

    def parenthesised(self):
        if self.tokens[:3] == ["by", "decide", ")"]:
            del self.tokens[:3]
            return "a proof"
        if self.tokens[1] == ":=":
            assert self.tokens[:4] == ["α", ":=", "Float", ")"]
            del self.tokens[:4]
            return "Float"
        value = self.applied() if self.tokens[0] != "{" else self.atom()
        if self.tokens[0] == ":":
            self.next()
            value = structure(self.applied(), value)
        self.next(")")
        return value

    def fields(self):
        found = {}
        while not found or self.next() == ",":
            name = self.next()
            self.next(":=")
            found[name] = self.applied()
        return found

    def called(self):
        """The result of a definition."""
        head, arguments = self.applied()
        arguments = [x for x in arguments if not (isinstance(x, str) and x == "Float")]
        name = head.removeprefix("Spec.")
        return self.definitions[name](**dict(zip(INTERFACE[name], arguments, strict=True)))


def bits(text):
    return np.array([int(word, 16) for word in text[2:-1].split(",")], np.uint64).view(float)


def truths(text):
    return np.array([{"true": True, "false": False}[word] for word in text[2:-1].split(", ")])


def part(value, names):
    """A field of a structure, or a part of a nested pair."""
    for name in names:
        if isinstance(value, dict):
            value = value[name]
        else:
            first, *others = value
            value = first if name == "1" else others if len(others) > 1 else others[0]
    return value


def structure(kind, fields):
    """A structure of `spec`, whose sizes and fields are those that Lean's type names."""
    name, sizes = kind[0].removeprefix("Spec."), [x for x in kind[1] if isinstance(x, int)]
    names, made = STRUCTURES[name]
    assert tuple(fields) == names == tuple(INTERFACE[name])
    arrays = [fields[field] for field in names]
    if name == "MultiHeadAttention":
        heads, model, width = sizes
        assert arrays[0].shape == (model, heads * width)
        return made(*arrays, heads, width, scalar=FLOAT64)
    expected = [*arrays[0].shape] if name == "PositionalEncodingSpec" else [*arrays[0].shape[:1], *arrays[1].shape]
    assert sizes == expected
    return made(*arrays, scalar=FLOAT64)


def failing(text, definitions=CORRECTED):
    """The names of the checks that fail: an entry is outside, or the call is not right."""
    for block in text.split("#eval show IO Unit from do\n")[1:]:
        names = {}
        block = re.sub(r"\n   +", " ", block.partition("\n\n")[0])
        for line in block.splitlines():
            kind, _, rest = line.strip().partition(" ")
            name, _, term = rest.partition(" := ")
            try:
                if kind == "check":
                    name, out, *bounds = Terms(rest, names, definitions).tokens
                    if not within(Terms(out, names, definitions).atom(), *map(bits, bounds)):
                        yield name.strip('"')
                elif name == "out":
                    names[name] = result(Terms(term, names, definitions).called())
                else:
                    names[name] = Terms(term, names, definitions).applied()
            except (AssertionError, ValueError, TypeError, IndexError) as error:
                yield f"{line.strip()[:60]}: {error}"


def result(out):
    """A result, with the gradients of multi-head attention as Lean's structure."""
    if isinstance(out, tuple) and len(out) == 5:
        fields = dict(zip(STRUCTURES["MultiHeadAttention"][0], out[1:], strict=True))
        return {"input": out[0], "parameters": fields}
    return out


def within(out, lower, upper, limit):
    flat = np.ravel(out)
    return flat.shape == lower.shape and ((lower - limit <= flat) & (flat <= upper + limit)).all()


# -- Tests -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generator():
    """The module that writes the file, with the reader of the vectors."""
    folders = [str(FOLDER), str(ROOT / "vectors/readers/python")]
    sys.path[:0] = folders
    try:
        yield importlib.import_module("lean_checks")
    finally:
        del sys.path[: len(folders)]


def test_the_file_is_what_the_program_writes(generator):
    assert generator.lean(ROOT / "vectors/data") == TEXT
    assert max(map(len, TEXT.splitlines())) <= 100


def test_the_corrected_definitions_pass_each_check(generator):
    assert [*failing(TEXT)] == []
    checked = re.findall(r'check "([a-z_]+)/float64/\d+ (\w+)"', TEXT)
    assert {*checked} == {(operation, output) for operation, call in generator.CALLS.items() for output in call.outputs}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_definitions_of_the_seed_revision_fail():
    failed = {name.partition(" ")[0].replace("/float64/", " ") for name in failing(TEXT, SEED)}
    assert failed == {
        "hard_masked_softmax 000",
        "hard_masked_softmax 001",
        "scaled_dot_product_attention_vjp 001",
        "scaled_dot_product_attention_jvp 000",
        "multi_head_attention 000",
        "multi_head_attention 001",
        "multi_head_attention_vjp 004",
        "multi_head_attention_jvp 009",
        "rope 012",
    }


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Q := q, K := k", "Q := k, K := q"),
        ("Q := q, K := k, V := v", "K := q, Q := k, V := v"),
        ("queryWeight := wq, keyWeight := wk", "queryWeight := wk, keyWeight := wq"),
        ("valueWeight := wv", "valueWeight := wk"),
        ("V := v, mask := (some mask)", "V := v, mask := none"),
        (" x (some mask)\n", " x none\n"),
        ("true", "false"),
        (" dq dk dv", " dq dv dk"),
        (" x dx none", " dx x none"),
        ("out.2.1", "out.2.2"),
        ("out.parameters.keyWeight", "out.parameters.queryWeight"),
        ("ropeApplySpec x 254", "ropeApplySpec x 0"),
        ("Float) 3 5 719031", "Float) 5 3 719031"),
        ("Float) 1 1 361655", "Float) 1 1 361656"),
        ("ropeApplySpec x 3", "ropeApplySpec x 4"),
        ("Float 2 1 3)", "Float 3 1 2)"),
        ("Float 6 6 7 ", "Float 7 6 6 "),
    ],
)
def test_a_misread_interface_fails(right, wrong):
    assert right in TEXT
    assert [*failing(TEXT.replace(right, wrong))]


GRADIENTS = {"MultiHeadAttentionGradients", "MultiHeadAttentionParameterGradients"}
SIGNATURES = {
    "hardMaskedSoftmaxSpec": attention.hard_masked_softmax_spec,
    "scaledDotProductAttention": attention.scaled_dot_product_attention,
    "scaledDotProductAttentionBackward": attention.scaled_dot_product_attention_backward,
    "scaledDotProductAttentionJvp": attention.scaled_dot_product_attention_jvp,
    "MultiHeadAttention.forward": corrected.multi_head_attention_forward,
    "multiHeadAttentionBackward": attention.multi_head_attention_backward,
    "multiHeadAttentionJvp": attention.multi_head_attention_jvp,
    "addPositionalEncodingSpec": positional_encoding.add_positional_encoding_spec,
    "sinusoidalPositionalEncodingSpec": positional_encoding.sinusoidal_positional_encoding_spec,
    "ropeApplySpec": positional_encoding.rope_apply_spec,
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_arguments_that_the_readme_states_have_the_order_of_spec(name):
    ours = [parameter.replace("_", "").lower() for parameter in inspect.signature(SIGNATURES[name]).parameters]
    assert [x for x in ours if x != "scalar"] == [x.lower() for x in INTERFACE[name] if x not in ("n", "h1")]


def test_the_readme_states_each_declaration_that_the_file_calls():
    used = {*re.findall(r"Spec\.([A-Za-z]+(?:\.forward)?)", TEXT)} - {"Layers"}
    assert used == INTERFACE.keys() - GRADIENTS == SIGNATURES.keys() | STRUCTURES.keys()
    assert {*re.findall(r"out\.parameters\.(\w+)", TEXT)} == {*INTERFACE["MultiHeadAttentionParameterGradients"]}


def test_the_readme_has_the_names_of_the_page_about_torchlean():
    changes = tomllib.loads((ROOT / "research/torchlean/changes.toml").read_text("utf-8"))
    now = {row[1] or row[0] for file in changes["file"] for row in file["declarations"]}
    assert INTERFACE.keys() - now == GRADIENTS
