"""The page of small mistakes: the criteria together see each of them."""

from research.benchmarks import small_mistakes


def test_some_criterion_sees_each_mistake_and_none_refuses_a_correct_kernel(tmp_path):
    file = tmp_path / "page.md"
    assert small_mistakes.main(["--lengths", "130", "--dtypes", "bfloat16", "--output", str(file)]) == 0
    assert "nothing sees a mistake: 0." in file.read_text("utf-8")
