"""Every misspelt name of the command line is answered with the name that was meant."""

import pytest

from oracles.spelling import did_you_mean
from properties.command.cli import main


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [
        ("halff", ("adjacent", "half"), " Did you mean 'half'?"),
        ("Rope-Pairing", ("rope_pairing",), " Did you mean 'rope_pairing'?"),
        ("zzz", ("adjacent", "half"), " They are two."),
        (3, ("adjacent", "half"), " They are two."),
    ],
)
def test_the_nearest_name_is_suggested_or_else_something_is_said(name, known, sentence):
    assert did_you_mean(name, known, "They are two.") == sentence
    assert did_you_mean("zzz", known) == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verfy"], "argument COMMAND: unknown value 'verfy'. Did you mean 'verify'?"),
        (["verify", "--time-limits", "5"], "error: Unknown option '--time-limits'. Did you mean '--time-limit'?"),
        (["laws", "--zzzzz=1"], "error: Unknown option '--zzzzz'. `attnspec laws --help` lists the options."),
        (["gate", "a.py", "--arrays", "tosch"], "argument --arrays: unknown value 'tosch'. Did you mean 'torch'?"),
        (["completion", "zzz"], "argument shell: unknown value 'zzz'. Choose from bash, zsh, fish."),
    ],
)  # fmt: skip
def test_subcommands_options_and_choices_are_suggested(capsys, arguments, sentence):
    with pytest.raises(SystemExit, match=r"^2$"):
        main(arguments)
    assert capsys.readouterr().err.endswith(f"{sentence}\n")
