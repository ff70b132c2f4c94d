"""The readers of the vectors refuse a broken file: they read nothing outside it, they end, and they
say what is wrong.
"""

import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

from properties.tests.test_vectors import COMMANDS, READERS

SAFE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

ONES = {"dtype": "F64", "shape": [1, 2], "data_offsets": [0, 16]}
NAMES = ("scores", "lower", "upper", "budget")
TEST = {
    "id": "hard_masked_softmax/float64/000",
    "result": "valid",
    "inputs": {"scores": "a/scores"},
    "outputs": {"weights": {part: f"a/{part}" for part in NAMES[1:]}},
}


def written(**changes):
    """The JSON of a file with one test, some of whose members are others."""
    group = {"format": "float64", "conventions": {}, "features": [], "tests": [{**TEST, **changes}]}
    inputs = {"scores": [], "mask": []}
    return json.dumps({"tensors": "hard_masked_softmax.safetensors", "inputs": inputs, "groups": [group]})


def tensors(length=None, **changes):
    """The bytes of four tensors of ones, with other entries of the header for some."""
    header = json.dumps({f"a/{name}": changes.get(name, ONES) for name in NAMES}).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + np.ones(2).tobytes()


def entry(**changes):
    """The header's entry of a tensor."""
    return {**ONES, **changes}


def other(old, new):
    """The JSON of the file with another text in its last place."""
    before, after = written().rsplit(old, 1)
    return before + new + after


BROKEN = {
    "cut off in a list": ('{"tensors":"t.safetensors","groups":[}', tensors()),
    "cut off in a string": ('{"tensors":"hard_masked', tensors()),
    "cut off behind a backslash": ('{"tensors":"\\', tensors()),
    "empty": ("", tensors()),
    "a list": ("[]", tensors()),
    "100,000 levels": ("[" * 100_000, tensors()),
    "no groups": ('{"tensors":"hard_masked_softmax.safetensors"}', tensors()),
    "an empty list of groups": (other('"groups": [', '"groups": [], "others": ['), tensors()),
    "no name of the tensors": ('{"groups":[]}', tensors()),
    "tensors of another folder": (other("hard_masked_softmax.safe", "../../hard_masked_softmax.safe"), tensors()),
    "tensors by a backslash": (other("hard_masked_softmax.safe", "..\\\\hard_masked_softmax.safe"), tensors()),
    "another format": (other('"format": "float64"', '"format": "float128"'), tensors()),
    "no inputs": (other('"inputs"', '"input"'), tensors()),
    "an unknown tensor": (other("a/scores", "a/nowhere"), tensors()),
    "an unknown bound": (other("a/upper", "a/nowhere"), tensors()),
    "a bound without a name": (other('"a/upper"', "7"), tensors()),
    "no file of tensors": (written(), None),
    "no header": (written(), b"1234567"),
    "a header beyond the file": (written(), tensors(length=10_000)),
    "a header of 2⁶⁴ − 1 bytes": (written(), tensors(length=2**64 - 1)),
    "a header that is cut off": (written(), tensors(length=20)),
    "an unknown type": (written(), tensors(scores=entry(dtype="F128"))),
    "no shape": (written(), tensors(scores={"dtype": "F64", "data_offsets": [0, 16]})),
    "numbers beyond the file": (written(), tensors(scores=entry(data_offsets=[16, 32]))),
    "numbers before the file": (written(), tensors(scores=entry(data_offsets=[-16, 0]))),
    "offsets that fall": (written(), tensors(scores=entry(data_offsets=[16, 0]))),
    "a shape that is too large": (written(), tensors(scores=entry(shape=[1000, 1000]))),
    "a shape of 2⁶⁴ numbers": (written(), tensors(scores=entry(shape=[2**32, 2**32]))),
    "a shape below zero": (written(), tensors(scores=entry(shape=[-1, -2]))),
    "a shape of halves": (written(), tensors(scores=entry(shape=[0.5, 4]))),
    "40 axes": (written(), tensors(scores=entry(shape=[1] * 39 + [3]))),
    "features that are no list": (other('"features": []', '"features": 7'), tensors()),
    "a reading without conventions": (written(readings=[{"outputs": {}}]), tensors()),
    "an unknown bound of a reading": (
        written(readings=[{"conventions": {}, "outputs": {"weights": {"lower": "a/nowhere"}}}]),
        tensors(),
    ),
    "a budget that is too short": (written(), tensors(budget=entry(shape=[1], data_offsets=[0, 8]))),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The command of each reader's example: compiled once, in C with sanitisers."""
    made = tmp_path_factory.mktemp("readers")
    found = {}
    for language, (*first, last) in COMMANDS.items():
        if shutil.which(COMMANDS[language][0][0]):
            for command in first:
                words = [word.format(made=made) for word in command]
                subprocess.run([*words, *SAFE] if language == "c" else words, cwd=READERS / language, check=True)
            found[language] = [word.format(made=made, data="{data}", format="float64") for word in last]
    return found


def run(programs, language, folder):
    """What the example of a reader prints of a folder, and its exit status."""
    if language not in programs:
        pytest.skip(f"The reader in {language} was not run: there is no {COMMANDS[language][0][0]} here.")
    words = [word.format(data=folder) for word in programs[language]]
    return subprocess.run(words, cwd=READERS / language, capture_output=True, text=True, check=False, timeout=60)


def write(folder, told, numbers):
    """Write a file of tests, and its tensors if there are any."""
    (folder / "hard_masked_softmax.json").write_text(told, "utf-8")
    if numbers is not None:
        (folder / "hard_masked_softmax.safetensors").write_bytes(numbers)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("language", [pytest.param(x, marks=[pytest.mark.thorough] * (x != "c")) for x in COMMANDS])
def test_a_broken_file_is_refused(programs, language, broken, tmp_path):
    """The folder above has the tensors too, so that a reader that leaves the folder finds them."""
    inner = tmp_path / "one" / "two"
    inner.mkdir(parents=True)
    for folder in (tmp_path, inner):
        write(folder, *BROKEN[broken])
    ended = run(programs, language, inner)
    assert ended.returncode in (1, 2)
    assert ended.stderr.strip()
    assert "Sanitizer" not in ended.stderr
    assert "panicked" not in ended.stderr
    assert " pass, " not in ended.stdout


@pytest.mark.parametrize("language", COMMANDS)
def test_the_file_that_is_not_broken_is_read(programs, language, tmp_path):
    """The second operation has no file here, so every example ends with an error after the first."""
    write(tmp_path, written(), tensors())
    assert "hard_masked_softmax right: 1 pass, 0 fail, 0 skip" in run(programs, language, tmp_path).stdout


MUTATED = {
    "python": [[sys.executable, "mutated.py", "{few}"]],
    "c": [
        ["cc", "-std=c99", "-g", "-O1", *SAFE, "mutated.c", "-o", "{made}/mutated", "-lm"],
        *(
            ["{made}/mutated", f"../../data/{name}.json", f"../../data/{name}.safetensors", "{quarter}", "1"]
            for name in ("rotate_half", "combine_masks", "alibi_slopes", "padding_mask")
        ),
        ["{made}/mutated", "../../data/rope.json", "../../data/rope.safetensors", "{few}", "1"],
    ],
    "javascript": [["node", "mutated.mjs", "{number}"]],
    "rust": [["cargo", "test", "--offline", "--quiet", "--target-dir", "{made}", "--test", "mutated"]],
}
"""How each reader is put to mutated files. Python has a tenth of them, since it is slower."""


@pytest.mark.parametrize(
    ("language", "number"),
    [("c", 1000), ("javascript", 1000), *(pytest.param(x, 1_000_000, marks=pytest.mark.thorough) for x in MUTATED)],
)
def test_mutated_files_are_read_or_refused(language, number, tmp_path):
    if not shutil.which(MUTATED[language][0][0]):
        pytest.skip(f"The reader in {language} was not run: there is no {MUTATED[language][0][0]} here.")
    for command in MUTATED[language]:
        counts = {"number": number, "few": number // 10, "quarter": number // 4}
        words = [word.format(made=tmp_path, **counts) for word in command]
        environment = {**os.environ, "NUMBER": str(number)}
        ended = subprocess.run(
            words, cwd=READERS / language, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
