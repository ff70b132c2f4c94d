"""What is counted as installed is what the wheel packs."""

from research.weight import sizes


def test_the_lines_of_packages_of_the_wheel_are_counted_without_tests(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.build.targets.wheel]\npackages = ["a"]\n')
    for name, text in (
        ("a/one.py", "1\n2\n"),
        ("a/b/two.py", "1\n"),
        ("a/tests/test_one.py", "1\n"),
        ("other/three.py", "1\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(sizes(tmp_path)) == [("a", 3, 5)]
