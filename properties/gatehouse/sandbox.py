"""What a child process has around it: an interpreter, a folder of its own, and the libraries that
it may import; nothing of ours.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["Sandbox", "sandbox"]

_HIDDEN = ("attnspec", "spec", "oracles", "properties")
_HOME = Path(__file__).resolve().parents[2]
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd", "group", "nsswitch.conf")
_TOLD = ("/sys/devices/system/cpu", "/dev/urandom", "/dev/zero", "/proc/cpuinfo", "/proc/meminfo")
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", *(f"/etc/{name}" for name in _ETC), *_TOLD)
_WRITABLE = ("/dev/null", "/proc/self")
_APART = ("--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "--ipc", "--net", "--kill-child")


@dataclass(frozen=True)
class Sandbox:
    """How a process is started in a folder: its command's beginning and environment, and what it may read and write."""

    command: tuple[str, ...]
    environment: dict[str, str]
    work: Path
    libraries: Path
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    apart: bool


def sandbox(folder: Path, libraries: Iterable[str], sources: dict[str, str]) -> Sandbox:
    """The sandbox in a fresh folder, with sources by their names and the libraries of some
    distributions.

    Raises ValueError for a distribution that is not installed, and for a source outside of the
    folder.
    """
    work, links = folder / "work", folder / "lib"
    work.mkdir()
    links.mkdir()
    for name, text in sources.items():
        place = (work / name).resolve()
        if work.resolve() not in place.parents:
            raise ValueError(f"A source is called {name!r}, but should be called by a path beneath its folder.")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    targets = tuple(dict.fromkeys(path for name in libraries for path in _files(name)))
    for target in targets:
        if not (links / target.name).exists():
            (links / target.name).symlink_to(target)
    python = os.path.realpath(sys.executable)
    threads = os.environ.get("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "TMPDIR": str(work),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": threads,
    }
    command = (*(("unshare", *_APART, "--") if _can_be_apart() else ()), python, "-I", "-S", "-B")
    readable = (*_of_the_interpreter(), str(links), *map(str, targets))
    return Sandbox(command, environment, work, links, readable, (str(work), *_WRITABLE), _can_be_apart())


@cache
def _can_be_apart() -> bool:
    """Whether a process can have a namespace of processes and one of networks of its own here: all
    that it starts ends with it.
    """
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", *_APART, "--", "true"], capture_output=True, check=False).returncode == 0


@cache
def _files(name: str) -> tuple[Path, ...]:
    """The modules and folders that an installed distribution has, and those that it needs, wherever they are."""
    found: dict[str, list[Path]] = {}
    missing = [name]
    while missing:
        key = missing.pop()
        if key in found:
            continue
        try:
            there = distribution(key)
        except PackageNotFoundError:
            if key == name:
                raise ValueError(f"There is no library {name!r}, but it should be installed.") from None
            found[key] = []
            continue
        found[key] = list(_tops(there))
        needed = (text for text in there.requires or () if "extra ==" not in text)
        missing += [match[0] for text in needed if (match := re.match(r"[\w.-]+", text))]
    return tuple(path for paths in found.values() for path in paths)


def _tops(there: Distribution) -> Iterator[Path]:
    """The files and folders of a distribution right beneath the folder where it is installed."""
    record = there.read_text("RECORD")  # thousands of lines: read as text, and not as the paths of there.files
    files = (row[0] for row in csv.reader(record.splitlines()) if row) if record else map(str, there.files or ())
    names = {file.partition("/")[0] for file in files}
    for name in sorted(names - {"", "..", "__pycache__", *_HIDDEN}):
        if not name.endswith(".pth"):
            yield Path(str(there.locate_file(name)))


@cache
def _of_the_interpreter() -> tuple[str, ...]:
    """The paths of the system and the standard library, without what is installed besides, and
    without ours, wherever they are.
    """
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    standard = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")]
    there = [Path(folder, name) for folder in standard for name in ("site-packages", "dist-packages")]
    hidden = {place.resolve() for place in (*(_HOME / name for name in _HIDDEN), *map(Path, installed), *there)}
    above = {parent for place in hidden for parent in place.parents}
    roots = (Path(root).resolve() for root in (*_SYSTEM, *standard, f"{sys.base_prefix}/bin"))
    return tuple(path for root in roots for path in _visible(root, hidden, above))


def _visible(root: Path, hidden: set[Path], above: set[Path]) -> Iterator[str]:
    """The paths that together are what is at a place, without what is to be hidden, by all places above that."""
    if root in hidden:
        return
    if root not in above:
        yield str(root)
        return
    for child in root.iterdir():
        if not child.is_symlink():
            yield from _visible(child, hidden, above)
