"""False alarms, as they are read from a campaign's database."""

from pathlib import Path

import pytest

from properties.campaign.bench import Broken, Result
from properties.campaign.chunks import Chunk, plan
from properties.campaign.store import Store
from research.seeds import main

ROWS = [("a", "rope"), ("b", "rope"), ("b", "rope_vjp")]
WRONG = Result({"violated": 1}, cases=100, examples=90, broken=(Broken("a law", "violated", 2.0, "It is wrong."),))


@pytest.fixture
def pages(tmp_path):
    """The page, and the exit status, of a campaign of three rows with so many chunks, one of which may be wrong."""

    def pages(done: int, wrong: int = -1) -> tuple[int, str]:
        database, output = tmp_path / f"{done}{wrong}.db", tmp_path / "seeds.txt"
        with Store(database, {"max_examples": 100}) as store:
            store.begin("none", 1, {})
            for i, chunk in zip(range(done), plan(ROWS, range(9), 100), strict=False):
                held = Result({"held": 3, "declared": 1}, cases=100, examples=90, excess=i / 10, line=i / 8)
                store.add(chunk, WRONG if i == wrong else held)
        return main([str(database), "--output", str(output)], len(ROWS)), Path(output).read_text("utf-8")

    return pages


def test_seeds_are_counted_whose_every_operation_is_done(pages):
    status, page = pages(8)  # of the third seed one operation is missing
    assert status == 0
    assert page.startswith(
        "False alarms on what comes with attnspec: 2 seeds, 0 to 1, "
        "100 cases of each operation for each seed, 600 in all, "
        "of 3 operations of implementations.\n"
    )
    assert [line.split() for line in page.splitlines()[3:5]] == [
        ["a", "6", "2", "200", "180", "0.3", "0.38", "0", "0"],
        ["b", "12", "4", "400", "360", "0.5", "0.62", "0", "0"],
    ]
    assert page.endswith("\nNo false alarm.\n")


def test_a_false_alarm_is_told_with_its_seed(pages):
    status, page = pages(6, wrong=4)
    assert status == 1
    assert page.endswith("\nb, seed 1: a law[rope]: It is wrong.\n")


def test_an_implementation_of_a_later_campaign_counts_as_it_is_there(tmp_path):
    """Its earlier chunks and violations count no more, and no others are lost."""
    for name, rows, answer in (("one", ROWS, WRONG), ("other", ROWS[1:], Result({"held": 1}, cases=100, examples=80))):
        with Store(tmp_path / name, {"max_examples": 100}) as store:
            store.begin("none", 1, {})
            for chunk in plan(rows, range(2), 100):
                store.add(chunk, answer)
    output = tmp_path / "seeds.txt"
    assert main([str(tmp_path / "one"), "--later", str(tmp_path / "other"), "--output", str(output)], len(ROWS)) == 1
    page = output.read_text("utf-8").splitlines()
    assert [line.split()[:5] for line in page[3:5]] == [["a", "0", "0", "200", "180"], ["b", "4", "0", "400", "320"]]
    assert page[6:] == [
        *(f"a, seed {seed}: a law[rope]: It is wrong." for seed in range(2)),
        "Of a later campaign by itself: b.",
    ]


def test_a_later_campaign_of_other_cases_is_refused(tmp_path):
    for name, cases in (("one", 100), ("other", 25)):
        with Store(tmp_path / name, {"max_examples": cases}):
            pass
    with pytest.raises(ValueError, match="other has max_examples=25, but should have 100 like the campaign before"):
        main([str(tmp_path / "one"), "--later", str(tmp_path / "other")], len(ROWS))


@pytest.mark.parametrize("done", [0, 2])
def test_a_campaign_without_a_whole_seed_is_no_success(pages, done):
    status, page = pages(done)
    assert status == 1
    assert "0 seeds" in page


def test_what_was_known_before_is_no_part_of_a_seed(tmp_path):
    with Store(tmp_path / "c.db", {"max_examples": 100}) as store:
        store.begin("none", 1, {})
        for chunk in (*plan(ROWS[:2], range(1), 100), Chunk(*ROWS[2], 0, 25)):
            store.add(chunk, Result({"held": 1}, cases=chunk.cases))
    assert main([str(tmp_path / "c.db"), "--output", str(tmp_path / "seeds.txt")], len(ROWS)) == 1
