"""The vectors are what is chosen, the same each time; what is wrong with a file is told; and they tell right from wrong."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import spec
from properties.command.cli import main
from properties.vectors.checking import check, read
from properties.vectors.container import packed, unpacked
from properties.vectors.writing import text_of, write

ROOT = Path(spec.__file__).parents[1]
READERS = ROOT / "vectors" / "readers"
FEW = ("hard_masked_softmax", "combine_masks")
READ = ("hard_masked_softmax", "scaled_dot_product_attention")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The vectors of a few operations, written now."""
    found = tmp_path_factory.mktemp("vectors")
    every = dict.fromkeys((*FEW, *READ))
    assert [file.stem for file in write(found, tuple(every))] == list(every)
    return found


def test_tensors_come_back_to_the_bit_and_as_the_library_reads_them(tmp_path):
    import ml_dtypes

    file = tmp_path / "x.safetensors"
    given = {
        "wide": np.array([[1.5, -0.0, np.nan, np.inf]]),
        "whole": np.array([-1, 2**40]),
        "brain": np.array([1.0, -2.5], ml_dtypes.bfloat16),
        "half": np.zeros((0, 3), np.float16),
        "mask": np.array(True),
    }
    file.write_bytes(packed(given))
    found = unpacked(file)
    assert {name: (x.dtype, x.shape, x.tobytes()) for name, x in found.items()} == {
        name: (x.dtype, x.shape, x.tobytes()) for name, x in given.items()
    }
    library = pytest.importorskip("safetensors", reason="safetensors is not installed: its library has not read the file.")
    for name, entry in library.deserialize(file.read_bytes()):
        assert bytes(entry["data"]) == given[name].tobytes()
        assert tuple(entry["shape"]) == given[name].shape


@pytest.mark.parametrize("cut", [4, 20, -8])
def test_a_file_that_ends_early_is_refused_in_a_sentence(cut, tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(packed({"x": np.ones(4)})[:cut])
    with pytest.raises(ValueError, match=r"x\.safetensors is not readable as safetensors: "):
        unpacked(file)


def test_what_is_written_is_right_and_the_same_to_the_byte(folder, tmp_path, capsys):
    assert main(["vectors", "check", *(str(folder / f"{name}.json") for name in FEW)]) == 0
    assert capsys.readouterr().out.count(" 0 wrong\n") == len(FEW)
    list(write(tmp_path, FEW))
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (folder / file.name).read_bytes()


def _changed(folder, tmp_path, change, tensor=""):
    """The softmax's vectors with something changed: the JSON, or the first entry of the named tensor of the first test."""
    told, tensors = read(folder / "hard_masked_softmax.json")
    test = told["groups"][0]["tests"][0]
    if tensor:
        name = {**test["inputs"], **test["outputs"]["weights"]}[tensor]
        tensors[name] = tensors[name].copy()
        tensors[name].flat[0] = change(tensors[name].flat[0])
    else:
        change(test)
    (tmp_path / "hard_masked_softmax.json").write_text(text_of(told), "utf-8")
    (tmp_path / "hard_masked_softmax.safetensors").write_bytes(packed(tensors))
    return [sentence for _, sentence in check(tmp_path / "hard_masked_softmax.json") if sentence]


@pytest.mark.parametrize(
    ("tensor", "change", "sentence"),
    [
        ("lower", lambda x: x + 0.5, r"weights: lower\[.*\]=.*, but should be .*; 1 of \d+ entries differ\."),
        ("budget", lambda x: 2 * x + 1, r"weights: budget\[.*\]=.*, but should be .*"),
        ("value", lambda x: x + 1, r"weights: value\[.*\]=.*, but should be .*"),
        ("scores", lambda x: x + 300, r"weights: (lower|value|budget)\[.*"),
        ("", lambda test: test.update(result="invalid") or test.pop("outputs"), r"It should be refused, but is not\."),
        ("", lambda test: test["inputs"].update(mask="nowhere"), r"It names tensors that there are not: nowhere\."),
        ("", lambda test: test["outputs"]["weights"].update(vacuous=True), r"weights: vacuous is True, but should be False\."),
    ],
)
def test_a_wrong_number_is_found(tensor, change, sentence, folder, tmp_path):
    told = _changed(folder, tmp_path, change, tensor)
    assert any(re.fullmatch(sentence, line) for line in told), told


def test_what_is_no_file_of_vectors_is_refused_in_a_sentence(folder, tmp_path, capsys):
    file = tmp_path / "hard_masked_softmax.json"
    for text, sentence in (
        ("{", " cannot be read: "),
        ("{}", " is no file of vectors: $: 'attnspec_vectors' is a required property"),
    ):
        file.write_text(text)
        assert main(["vectors", "check", str(file)]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["vectors"]) == 2
    assert main(["vectors", "check", str(tmp_path / "nowhere.json")]) == 2


def test_the_python_reader_finds_the_right_one(folder):
    printed = subprocess.run(
        [sys.executable, "example.py", folder], cwd=READERS / "python", capture_output=True, text=True, check=True
    ).stdout
    _judges(printed)


def _judges(printed):
    """What the readers' examples print: of each operation a right and a wrong one, and how many tests each fails."""
    told = re.findall(r"^(\w+) (right|wrong) fails (\d+) of (\d+)$", printed, re.MULTILINE)
    assert {(operation, name) for operation, name, *_ in told} == {(operation, name) for operation in READ for name in ("right", "wrong")}
    for _, name, failed, number in told:
        assert int(number) >= 8
        assert (int(failed) == 0) == (name == "right")
