"""What is wrong with a file of vectors is told; what is published is certified again; and the
readers tell right from wrong.
"""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import spec
from properties.command.cli import main
from properties.vectors.checking import SCHEMA, check, read
from properties.vectors.container import packed, unpacked

ROOT = Path(spec.__file__).parents[1]
DATA, READERS = ROOT / "vectors" / "data", ROOT / "vectors" / "readers"
FEW = ("hard_masked_softmax", "combine_masks", "merge_attention", "rope")


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
    library = pytest.importorskip(
        "safetensors", reason="safetensors is not installed: its library has not read the file."
    )
    for name, entry in library.deserialize(file.read_bytes()):
        assert bytes(entry["data"]) == given[name].tobytes()
        assert tuple(entry["shape"]) == given[name].shape


@pytest.mark.parametrize("cut", [4, 20, -8])
def test_a_file_that_ends_early_is_refused_in_a_sentence(cut, tmp_path):
    file = tmp_path / "x.safetensors"
    file.write_bytes(packed({"x": np.ones(4)})[:cut])
    with pytest.raises(ValueError, match=r"x\.safetensors is not readable as safetensors: "):
        unpacked(file)


def test_what_is_published_is_certified_again(capsys):
    """A share of the operations, as `attnspec vectors check` does it."""
    files = [DATA / "long" / "rope.json", *(DATA / f"{name}.json" for name in (*FEW, "attention_vjp"))]
    assert main(["vectors", "check", *map(str, files)]) == 0
    assert capsys.readouterr().out.count(" 0 wrong\n") == len(files)


def test_the_published_schema_is_the_one_by_which_files_are_checked():
    assert (ROOT / "vectors" / "schema.json").read_bytes() == SCHEMA.read_bytes()


def _changed(tmp_path, change, tensor=""):
    """The softmax's vectors with something changed: the JSON, or the first entry of the named
    tensor of the first test.
    """
    told, tensors = read(DATA / "hard_masked_softmax.json")
    test = told["groups"][0]["tests"][0]
    if tensor:
        name = {**test["inputs"], **test["outputs"]["weights"]}[tensor]
        tensors[name] = tensors[name].copy()
        tensors[name].flat[0] = change(tensors[name].flat[0])
    else:
        change(test)
    (tmp_path / "hard_masked_softmax.json").write_text(json.dumps(told), "utf-8")
    (tmp_path / "hard_masked_softmax.safetensors").write_bytes(packed(tensors))
    return [sentence for _, sentence in check(tmp_path / "hard_masked_softmax.json") if sentence]


@pytest.mark.parametrize(
    ("tensor", "change", "sentence"),
    [
        ("lower", lambda x: x + 0.5, r"weights: lower\[.*\]=.*, but should be .*; 1 of \d+ entries differ\."),
        ("lower", lambda x: x - 0.5, r"weights: lower\[.*\]=.*, but should be .*; 1 of \d+ entries differ\."),
        ("upper", lambda x: np.inf, r"weights: upper\[.*\]=inf, but should be .*; 1 of \d+ entries differ\."),
        ("value", lambda x: np.nan, r"weights: value\[.*\]=nan, but should be .*"),
        ("decided", lambda x: not x, r"weights: decided\[.*\]=.*, but should be .*"),
        (
            "",
            lambda test: test["outputs"]["weights"].update(atol=1e9),
            r"weights: atol is 1000000000\.0, but should be .*\.",
        ),
        ("budget", lambda x: 2 * x + 1, r"weights: budget\[.*\]=.*, but should be .*"),
        ("value", lambda x: x + 1, r"weights: value\[.*\]=.*, but should be .*"),
        ("mask", lambda x: not x, r"weights: (lower|value|budget)\[.*"),
        (
            "",
            lambda test: test.update(result="invalid") or test.pop("outputs"),
            r"The oracle should refuse it, but does not\.",
        ),
        ("", lambda test: test["inputs"].update(mask="no/where"), r"It names tensors that the file lacks: no/where\."),
        (
            "",
            lambda test: test["outputs"]["weights"].update(vacuous=True),
            r"weights: vacuous is True, but should be False\.",
        ),
    ],
)
def test_a_wrong_number_is_found(tensor, change, sentence, tmp_path):
    told = _changed(tmp_path, change, tensor)
    assert any(re.fullmatch(sentence, line) for line in told), told


def test_what_is_no_file_of_vectors_is_refused_in_a_sentence(tmp_path, capsys):
    file = tmp_path / "hard_masked_softmax.json"
    for text, sentence in (
        ("{", " cannot be read: "),
        ("{}", " is not a file of vectors: $: 'attnspec_vectors' is a required property"),
    ):
        file.write_text(text)
        assert main(["vectors", "check", str(file)]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["vectors"])
    assert main(["vectors", "check", str(tmp_path / "nowhere.json")]) == 2


COMMANDS = {
    "python": [[sys.executable, "example.py", "{data}", "{format}"]],
    "c": [
        ["cc", "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "{made}/example", "-lm"],
        ["{made}/example", "{data}", "{format}"],
    ],
    "javascript": [["node", "example.mjs", "{data}", "{format}"]],
    "rust": [
        ["cargo", "run", "--offline", "--quiet", "--target-dir", "{made}", "--example", "example", "{data}", "{format}"]
    ],
}
"""How the example of each reader is run."""


READ = {
    "hard_masked_softmax": ("right", "wrong"),
    "scaled_dot_product_attention": ("right", "wrong"),
    "rope": ("right", "wrong", "half"),
}
"""What the examples judge: "half" is right code that declares rope_pairing=half."""


@cache
def _printed(language, number_format, made=""):
    """What the example of a reader prints. Python's needs no folder for what is compiled."""
    if not shutil.which(COMMANDS[language][0][0]):
        pytest.skip(f"The reader in {language} was not run: there is no {COMMANDS[language][0][0]} here.")
    for command in COMMANDS[language]:
        words = [word.format(data=DATA, made=made, format=number_format) for word in command]
        run = subprocess.run(words, cwd=READERS / language, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of what the readers compile."""
    return tmp_path_factory.mktemp("readers")


@pytest.mark.parametrize("number_format", ["float32", "float64"])
@pytest.mark.parametrize("language", COMMANDS)
def test_a_reader_finds_the_right_one(language, number_format, made):
    """Of each operation a right and a wrong function of the language itself are judged. The right one
    fails nothing, the wrong one something, and each says of each test what the Python reader says.
    """
    printed = _printed(language, number_format, "" if language == "python" else made)
    told = re.findall(r"^(\w+) (\w+): (\d+) pass, (\d+) fail, (\d+) skip$", printed, re.MULTILINE)
    assert [(operation, name) for operation, name, *_ in told] == [(o, name) for o in READ for name in READ[o]]
    for operation, name, *counts in told:
        passed, failed, skipped = map(int, counts)
        assert passed + failed + skipped == len(_asked(operation, number_format, all_groups=True))
        assert (failed == 0) == (name != "wrong")
        assert passed > 1
    if language != "python":
        assert _comparable(printed) == _comparable(_printed("python", number_format))


def _comparable(printed):
    """The lines of an example without numbers, which each language rounds and writes in its own way, and
    without the function's own reasons.
    """
    numbers = re.sub(r"\[[\d, ]*\]=.*? times its", "", printed)
    return re.sub(r"(does not support|refuses) this call.*", r"\1", numbers).split("\n")


def _asked(operation, number_format="float32", all_groups=False):
    """The tests of a format in the file's own conventions, or in all."""
    groups = json.loads((DATA / f"{operation}.json").read_text())["groups"]
    return [
        test
        for group in groups
        if group["format"] == number_format and (all_groups or not group["conventions"])
        for test in group["tests"]
    ]


LISTS = """
import { judged } from "./vectors.mjs";
const causal = ({ n_q, n_k }) => {
  const keys = n_k ?? n_q;
  return Array.from({ length: n_q * keys }, (_, i) => i % keys <= Math.floor(i / keys));
};
const passed = (operation, call) => {
  const results = [...judged(`DATA/${operation}.json`, call, "float64")];
  return results.filter(({ outcome }) => outcome === "pass").map(({ id }) => id);
};
console.log(JSON.stringify([passed("causal_mask", causal), passed("learned_positional_encoding", () => [])]));
"""


def test_the_reader_of_javascript_takes_lists_of_booleans_and_empty_ones(tmp_path):
    if not shutil.which("node"):
        pytest.skip("The reader in JavaScript was not run: there is no node here.")
    command = ["node", "--input-type=module", "--eval", LISTS.replace("DATA", str(DATA))]
    run = subprocess.run(command, cwd=READERS / "javascript", capture_output=True, text=True, check=True)
    causal, nothing = json.loads(run.stdout)
    assert causal == [test["id"] for test in _asked("causal_mask", "float64") if test["result"] != "invalid"] != []
    known = unpacked(DATA / "learned_positional_encoding.safetensors")
    results = {
        test["id"]: [*test.get("outputs", {}).values()] for test in _asked("learned_positional_encoding", "float64")
    }
    assert nothing == [name for name, wanted in results.items() if wanted and known[wanted[0]["lower"]].size == 0] != []


TOLD = """
#include "vectors.h"
static int tell(const av_test *test, double **out) {
    (void)out;
    double left = av_side(test, "window", 0, -1), right = av_side(test, "window", 1, -1);
    printf("%g %g %g\\n", av_number(test, "causal", -1), left, right);
    return 0;
}
int main(int count, char **given) {
    av_counts counts;
    const char *features = "mask,bias,scale,causal,offset,window,softcap,sink,offsets,alibi,dropout_mask,dropout";
    av_declared declared = {"float64", features, NULL};
    return count < 2 || av_judge(av_open(given[1]), &declared, tell, &counts, NULL);
}
"""


def test_the_reader_in_c_reads_flags_and_pairs(tmp_path):
    """A flag is 1 or 0; what is not given, or open, is what is usual, −1 here."""
    if not shutil.which("cc"):
        pytest.skip("The reader in C was not run: there is no cc here.")
    (tmp_path / "told.c").write_text(TOLD)
    command = [
        "cc",
        "-std=c99",
        "-I",
        str(READERS / "c"),
        str(tmp_path / "told.c"),
        "-o",
        str(tmp_path / "told"),
        "-lm",
    ]
    subprocess.run(command, check=True)
    printed = subprocess.run(
        [tmp_path / "told", DATA / "attention.json"], capture_output=True, text=True, check=True
    ).stdout
    told = [test["inputs"] for test in _asked("attention", "float64")]
    sides = [x.get("window") or (None, None) for x in told]
    flags = [x.get("causal") for x in told]
    assert True in flags
    assert any(side is not None for pair in sides for side in pair)
    wanted = [[-1 if x is None else int(x) for x in (flag, *pair)] for flag, pair in zip(flags, sides, strict=True)]
    assert [[*map(int, line.split())] for line in printed.splitlines()] == wanted


def test_what_is_flagged_as_empty_has_an_array_of_size_0():
    for file in DATA.glob("*.json"):
        told, tensors = read(file)
        for test in (test for group in told["groups"] for test in group["tests"] if test["result"] != "invalid"):
            names = [*test["inputs"].values(), *(out["lower"] for out in test["outputs"].values())]
            sizes = [tensors[name].size for name in names if isinstance(name, str) and name in tensors]
            lengths = [
                test["inputs"].get(name) for name in ("n_q", "n_k", "seq_len", "embed_dim", "head_dim", "num_heads")
            ]
            assert ("Empty" in test["flags"]) == (0 in (*sizes, *lengths)), test["id"]


ODD = """
import json
from example import attention, attention_scaled_by_width
from vectors import judged

def refuses(**given):
    raise IndexError

def judge(name, function, number_format="float32"):
    found = judged(rf"{data}/{{name}}.json", function, number_format)
    print(json.dumps([judgement.outcome == "pass" for judgement in found if judgement.outcome != "skip"]))

judge("long/scaled_dot_product_attention", attention)
judge("long/scaled_dot_product_attention", attention_scaled_by_width)
judge("long/rope", lambda x, **more: x, "bfloat16")
judge("scaled_dot_product_attention_vjp", lambda **given: ())
judge("scaled_dot_product_attention_vjp", refuses)
"""


def test_the_python_reader_reads_long_cases_and_takes_neither_too_few_results_nor_a_refusal_for_right():
    command = [sys.executable, "-c", ODD.format(data=DATA)]
    printed = subprocess.run(command, cwd=READERS / "python", capture_output=True, text=True, check=True).stdout
    right, scaled, same, nothing, refused = map(json.loads, printed.splitlines())
    assert (right, scaled) == (
        [True, True],
        [False, True],
    )  # where one key has all the weight, the scale does not matter
    assert not any(same)
    asked = _asked("scaled_dot_product_attention_vjp")
    assert refused == [test["result"] == "invalid" for test in asked]
    assert nothing == [False] * len(asked)


READ_OTHERWISE = """
import numpy as np
from collections import Counter
from example import attention
from vectors import judged

def dead_rows_are_nan(q, k, v, mask=None):
    out = attention(q, k, v, mask)
    if mask is None:
        return out
    visible = np.broadcast_to(mask, (*out.shape[:-1], k.shape[-2]))
    return np.where(visible.any(-1)[..., None], out, np.nan)

for function in (attention, dead_rows_are_nan):
    for conventions in (None, {{"dead_rows": "zero"}}, {{"dead_rows": "nan"}}):
        found = [*judged(r"{data}/scaled_dot_product_attention.json", function, "float32", None, conventions)]
        count = Counter(judgement.outcome for judgement in found)
        print(count["pass"], count["fail"], count["skip"])
"""


def test_the_python_reader_judges_another_convention_by_its_reading():
    """A convention that is declared as the file has it changes nothing."""
    command = [sys.executable, "-c", READ_OTHERWISE.format(data=DATA)]
    printed = subprocess.run(command, cwd=READERS / "python", capture_output=True, text=True, check=True).stdout
    counts = [[*map(int, line.split())] for line in printed.splitlines()]
    usual, same, wrong, otherwise, also, right = counts
    assert usual == same
    assert otherwise == also
    assert usual[1] == right[1] == 0
    assert wrong[1] > 0
    assert otherwise[1] > 0
    assert usual[2] <= right[2] <= usual[2] + 1  # one rests on it and has no reading of it


DECLARED = """
from example import rope
from vectors import judged

def halves(x, start_pos=0, positions=None):
    raise ValueError("not today")

wrong = {{"rope_paring": "half"}}
for options in ({{"features": ["postions"]}}, {{"conventions": wrong}}, {{"features": ["positions"]}}):
    try:
        found = [*judged(r"{data}/rope.json", halves, "float32", **options)]
        print(next(judgement for judgement in found if judgement.outcome == "fail"))
    except ValueError as error:
        print(error)
"""


def test_the_python_reader_refuses_names_that_the_file_does_not_know():
    command = [sys.executable, "-c", DECLARED.format(data=DATA)]
    printed = subprocess.run(command, cwd=READERS / "python", capture_output=True, text=True, check=True).stdout
    feature, convention, refused = printed.splitlines()
    known = "attention_factor, inv_freq, positions, rotary_dim, sections"
    assert feature == f"The file has no feature 'postions', but has: {known}."
    known = "mrope, odd_lane, rope_base, rope_pairing, rope_scale"
    assert convention == f"The file has no convention 'rope_paring', but has: {known}."
    said = "fail The function refuses this call: ValueError: not today Known bugs"
    assert re.match(rf"rope/float32/\d+ {said}", refused)


IN_THE_README = """
from example import JUDGED
from vectors import judged
{reader}
for operation, functions in JUDGED.items():
    for function in functions.values():
        found = judged(rf"{data}/{{operation}}.json", function, "float32")
        told = [judgement.test for judgement in found if judgement.outcome == "fail"]
        print(told == [*failed(r"{data}", operation, function)], len(told))
"""


def test_the_reader_in_the_readme_says_the_same():
    (reader,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "vectors/README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    command = [sys.executable, "-W", "ignore", "-c", IN_THE_README.format(reader=reader, data=DATA)]
    printed = subprocess.run(command, cwd=READERS / "python", capture_output=True, text=True, check=True).stdout.split()
    assert printed[::2] == ["True"] * 6
    for result in ("()", "np.zeros(7)", "1 / 0"):
        wrong = f"lambda q, k, v, grad_out, mask=None: {result}"
        judge = f"import numpy as np\n{reader}\nprint(*failed(r'{DATA}', 'scaled_dot_product_attention_vjp', {wrong}))"
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", judge], capture_output=True, text=True, check=True)
        refused = [
            test
            for test in _asked("scaled_dot_product_attention_vjp")
            if test["result"] != "invalid" or "/" not in wrong
        ]
        assert run.stdout.split() == [test["id"] for test in refused]
    assert [int(number) > 0 for number in printed[1::2]] == [False, True, False, True, False, True]


def test_every_reader_is_run():
    assert {path.name for path in READERS.iterdir()} == set(COMMANDS)
