"""Laws of attention and positional encodings, the implementations under test, the known bugs, and the verifier that brings them together.

report = properties.verify({"rope": my_rope}, arithmetic="float32")

@properties.parametrize_with_laws([my_implementation])
def test_conformance(check): check()
"""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from properties.contract.caches import Decoder as Decoder
    from properties.contract.concatenating import concatenating as concatenating
    from properties.contract.implementation import Implementation as Implementation
    from properties.contract.twins import Twin as Twin
    from properties.gatehouse.gate import gate as gate
    from properties.gatehouse.verdict import Verdict as Verdict
    from properties.pytest_plugin import parametrize_with_laws as parametrize_with_laws
    from properties.verifier.replay import call as call
    from properties.verifier.replay import replay as replay
    from properties.verifier.report import Report as Report
    from properties.verifier.report import Violation as Violation
    from properties.verifier.verify import verify as verify

# Loaded when first used: pytest imports this package in every session of everyone who has attnspec installed, for its plugin.
_WHERE = {
    "Decoder": "properties.contract.caches",
    "Implementation": "properties.contract.implementation",
    "Report": "properties.verifier.report",
    "Twin": "properties.contract.twins",
    "Verdict": "properties.gatehouse.verdict",
    "Violation": "properties.verifier.report",
    "call": "properties.verifier.replay",
    "concatenating": "properties.contract.concatenating",
    "gate": "properties.gatehouse.gate",
    "parametrize_with_laws": "properties.pytest_plugin",
    "replay": "properties.verifier.replay",
    "verify": "properties.verifier.verify",
}
__all__ = [
    "Decoder",
    "Implementation",
    "Report",
    "Twin",
    "Verdict",
    "Violation",
    "call",
    "concatenating",
    "gate",
    "parametrize_with_laws",
    "replay",
    "verify",
]

_home = Path(__file__).resolve().parent.parent
_found = find_spec("oracles")
if _found is None or _found.origin is None or Path(_found.origin).resolve().parent.parent != _home:
    raise ImportError(
        f"import oracles finds {_found.origin if _found else 'no package'}, but should find {_home / 'oracles'}: "
        "another distribution shadows a package of attnspec."
    )


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'properties' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
