"""An environment in which the wheel is installed, and nothing of the checkout can be imported."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    line = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(line, check=True)
    (file,) = folder.glob("attnspec-*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The `bin` folder of an environment with the wheel. It takes other packages from the
    environment of these tests.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    line = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        str(wheel),
    ]
    subprocess.run(line, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Python searches a folder that a .pth file names, but reads no .pth file in it: the checkout
    # stays invisible.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"
