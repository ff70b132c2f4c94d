"""What `import oracles` offers, and what it imports."""

import subprocess
import sys
from pathlib import Path

import oracles

HOME = Path(oracles.__file__).resolve().parent.parent


def test_the_public_surface_is_sorted_and_documented() -> None:
    for name in oracles.__all__:
        thing = getattr(oracles, name)
        assert thing.__doc__, name


def test_importing_it_imports_no_array_library_but_numpy() -> None:
    code = (
        "import sys, oracles; print(sorted({'torch', 'jax', 'cupy', 'mlx', 'ml_dtypes', 'mpmath'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HOME)
    assert done.stdout == "[]\n"
