"""Laws of attention and positional encodings, implementations under test, and the verifier that brings them together."""

from pathlib import Path

import oracles

_home = Path(__file__).resolve().parent.parent
if Path(oracles.__file__).resolve().parent.parent != _home:
    raise ImportError(
        f"import oracles finds {oracles.__file__}, but should find {_home / 'oracles'}: another distribution shadows a package of attnspec."
    )
