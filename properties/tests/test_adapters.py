"""What a target names: files, modules, and the only adapter in them."""

import runpy
import sys
from pathlib import Path

import pytest

from properties.processes.adapters import AdapterError, load
from properties.verifier.script import script
from properties.verifier.verify import verify

ROPE = "from properties.bugs.reference import REFERENCE as _REFERENCE\nrope = _REFERENCE['rope']\n"
DECLARED = "from properties import Implementation\n"


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes Python files, by paths below a working directory of their own; what is imported from
    there is forgotten.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("target", ["kernels.py", "./kernels.py", "kernels", "kernels.py:adapter", "kernels:adapter"])
def test_a_file_is_the_module_that_it_is(written, target):
    written(kernels=f"{ROPE}adapter = {{'rope': rope}}\n")
    (found,) = load([target])
    assert (found.target, found.implementation.name) == ("kernels:adapter", "adapter")


def test_a_module_is_its_only_implementation_under_any_name_or_its_only_mapping_or_its_functions(written):
    written(
        declared=f"{DECLARED}{ROPE}functions = {{'rope': rope}}\n"
        "first = Implementation('mine', functions)\nalso = first\n",
        grouped=f"{ROPE}both = {{'here': [{{'rope': rope}}], 'there': [{{'rope': rope}}]}}\n",
        functions=ROPE,
    )
    assert [(f.target, f.implementation.name) for f in load(["declared.py"])] == [("declared:first", "mine")]
    assert [(f.target, f.group) for f in load(["grouped.py"])] == [("grouped:both", "here"), ("grouped:both", "there")]
    assert [(f.target, f.implementation.name) for f in load(["functions.py"])] == [("functions", "functions")]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("two.py", "two has 2 adapters: first, second. Name one, as in two:first."),
        ("two.py:third", "two has no attribute 'third'. Its adapters are first, second."),
        ("two.py:secnd", "two has no attribute 'secnd'. Did you mean 'second'?"),
        (
            "none.py",
            "none has no adapter: no properties.Implementation, no mapping from operations to functions, and no "
            "function of an operation's name. `attnspec operations` lists the operations. `attnspec inspect "
            "FILE.py:FUNCTION --operation NAME` writes the adapter of a function with another name.",
        ),
        ("none.py:adapter", "none has no attribute 'adapter'. It has no adapter of another name."),
        ("absent.py", "absent.py does not exist. Give a .py file or an importable module."),
        ("./kernels.txt", "./kernels.txt is not a Python file: its name should end in .py."),
    ],
)
def test_what_was_found_instead_is_said(written, target, sentence):
    written(
        two=f"{DECLARED}{ROPE}first = Implementation('a', {{'rope': rope}})\n"
        "second = Implementation('b', {'rope': rope})\n",
        none="x = 1\n",
    )
    Path("kernels.txt").write_text(ROPE)
    with pytest.raises(AdapterError) as raised:
        load([target])
    assert str(raised.value) == sentence


def test_a_file_whose_name_another_module_has_is_refused(written, tmp_path):
    written(hypothesis=ROPE)
    with pytest.raises(
        AdapterError, match=r"import hypothesis finds .*, but should find .*hypothesis.py: give the file another name\."
    ):
        load(["hypothesis.py"])


def test_a_file_elsewhere_and_in_a_package_is_found_again_by_its_script(written, tmp_path, monkeypatch):
    written(
        **{
            "place/kernels": "def rope(x, start_pos=0):\n    return x * 2\n",
            "package/__init__": "",
            "package/kernels": ROPE,
        }
    )
    (inside,) = load(["package/kernels.py"])
    assert inside.target == "package.kernels"
    (elsewhere,) = load(["place/kernels.py"])
    assert elsewhere.target == f"{tmp_path / 'place/kernels.py'}"
    report = verify(elsewhere.implementation, laws=["rope is within its error limit"], max_examples=4)
    (tmp_path / "again.py").write_text(script(report.violations[0], elsewhere.target))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.startswith(str(tmp_path))])
    del sys.modules["kernels"]
    with pytest.raises(AssertionError, match="but should be"):
        runpy.run_path(str(tmp_path / "again.py"))


def test_each_text_of_only_names_an_implementation_or_a_group(written):
    written(grouped=f"{ROPE}both = {{'torch': [{{'rope': rope}}], 'numpy': [{{'rope': rope}}]}}\n")
    assert [found.group for found in load(["grouped.py"], only=["TOR"])] == ["torch"]
    with pytest.raises(AdapterError, match=r"^No implementation or group matches 'tosch'\. Did you mean 'torch'\?$"):
        load(["grouped.py"], only=["numpy", "tosch"])
    with pytest.raises(
        AdapterError, match=r"^No implementation or group matches 'zzz'\. The groups are torch, numpy\.$"
    ):
        load(["grouped.py"], only=["zzz"])
