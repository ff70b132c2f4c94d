"""Prepares the surroundings of an untrusted process: an interpreter, a new folder, and its
libraries, but no file of attnspec.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
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
_MORE_PROCESSES = 512  # that this user may have in all, above those that there are
_APART = ("--user", "--map-current-user", "--pid", "--fork", "--mount-proc", "--ipc", "--net", "--kill-child")


@dataclass(frozen=True)
class Sandbox:
    """How to start the untrusted process: its command and environment, the paths that it may read
    and write, how many processes and threads this user may then have, whether it has a namespace of
    processes, and whether it has a supervisor instead.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    work: Path
    libraries: Path
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    processes: int
    apart: bool
    supervised: bool


def sandbox(folder: Path, libraries: Iterable[str], sources: dict[str, str]) -> Sandbox:
    """Prepare a new folder with the sources and the libraries that the kernel needs, and return how
    to start the process in it.

    `libraries` are names of installed distributions. Raises ValueError for a distribution that is
    not installed, for a source outside of the folder, and if the disk is full or read-only.
    """
    work_folder, library_folder = folder / "work", folder / "lib"
    targets = tuple(dict.fromkeys(path for name in libraries for path in _files(name)))
    try:
        _fill(work_folder, library_folder, sources, targets)
    except OSError as error:
        raise ValueError(f"The kernel cannot be copied to {folder}: {error.strerror}.") from None
    python = os.path.realpath(sys.executable)
    threads = os.environ.get("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work_folder),
        "TMPDIR": str(work_folder),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": threads,
    }
    apart = _can_be_apart()
    command = (*(("unshare", *_APART, "--") if apart else ()), python, "-I", "-S", "-B")
    readable = (*_of_the_interpreter(), str(library_folder), *map(str, targets))
    return Sandbox(
        *(command, environment, work_folder, library_folder, readable, (str(work_folder), *_WRITABLE)),
        processes=_threads() + _MORE_PROCESSES,
        apart=apart,
        supervised=not apart and sys.platform == "linux",
    )


def _fill(work_folder: Path, library_folder: Path, sources: dict[str, str], targets: Iterable[Path]) -> None:
    """Write the sources, and links to the libraries."""
    work_folder.mkdir()
    library_folder.mkdir()
    for name, text in sources.items():
        source_path = (work_folder / name).resolve()
        if work_folder.resolve() not in source_path.parents:
            raise ValueError(f"The path of a source is {name!r}, but should be inside the folder.")
        source_path.parent.mkdir(parents=True, exist_ok=True)
        source_path.write_text(text, "utf-8")
    for target in targets:
        if not (library_folder / target.name).exists():
            (library_folder / target.name).symlink_to(target)


def _threads() -> int:
    """Return how many threads this user has; a large number if the system does not tell."""
    number = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            number += len(os.listdir(process / "task")) if process.stat().st_uid == os.getuid() else 0
    return number or 2**20


@cache
def _can_be_apart() -> bool:
    """Return whether this system allows new namespaces of processes and networks. If it does, all
    children end with the process.
    """
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", *_APART, "--", "true"], capture_output=True, check=False).returncode == 0


@cache
def _files(name: str) -> tuple[Path, ...]:
    """Return the modules and folders of an installed distribution, and of the distributions that it
    needs.
    """
    paths_by_name: dict[str, list[Path]] = {}
    names_left = [name]
    while names_left:
        missing_name = names_left.pop()
        if missing_name in paths_by_name:
            continue
        try:
            installed = distribution(missing_name)
        except PackageNotFoundError:
            if missing_name == name:
                raise ValueError(f"The library {name!r} is not installed.") from None
            paths_by_name[missing_name] = []
            continue
        paths_by_name[missing_name] = list(_tops(installed))
        needed = (text for text in installed.requires or () if "extra ==" not in text)
        names_left += [match[0] for text in needed if (match := re.match(r"[\w.-]+", text))]
    return tuple(path for paths in paths_by_name.values() for path in paths)


def _tops(there: Distribution) -> Iterator[Path]:
    """Yield the top-level files and folders of a distribution."""
    record = there.read_text("RECORD")  # thousands of lines: text is faster than the paths of .files
    file_names = (row[0] for row in csv.reader(record.splitlines()) if row) if record else map(str, there.files or ())
    names = {file.partition("/")[0] for file in file_names}
    for name in sorted(names - {"", "..", "__pycache__", *_HIDDEN}):
        if not name.endswith(".pth"):
            yield Path(str(there.locate_file(name)))


@cache
def _of_the_interpreter() -> tuple[str, ...]:
    """Return the paths of the system and of the standard library, without installed distributions
    and without attnspec.
    """
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    standard = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")]
    package_folders = [Path(folder, name) for folder in standard for name in ("site-packages", "dist-packages")]
    hidden = {
        place.resolve() for place in (*(_HOME / name for name in _HIDDEN), *map(Path, installed), *package_folders)
    }
    above = {parent for place in hidden for parent in place.parents}
    roots = (Path(root).resolve() for root in (*_SYSTEM, *standard, f"{sys.base_prefix}/bin"))
    return tuple(path for root in roots for path in _visible(root, hidden, above))


def _visible(root: Path, hidden: set[Path], above: set[Path]) -> Iterator[str]:
    """Yield the paths that together contain a folder without its hidden places. `above` are all
    parent folders of the hidden places.
    """
    if root in hidden:
        return
    if root not in above:
        yield str(root)
        return
    for child in root.iterdir():
        if not child.is_symlink():
            yield from _visible(child, hidden, above)
