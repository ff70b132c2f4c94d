"""Laws of attention and positional encodings, the implementations under test, the known bugs, and
the verifier that brings them together.

report = properties.verify({"rope": my_rope}, arithmetic="float32")

@properties.parametrize_with_laws([my_implementation])
def test_conformance(check): check()
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnspec.own_names import shadowing

if TYPE_CHECKING:
    from properties.conformance import parametrize_with_laws as parametrize_with_laws
    from properties.contract.aborts import AbortedError as AbortedError
    from properties.contract.caches import BatchedDecoder as BatchedDecoder
    from properties.contract.caches import Decoder as Decoder
    from properties.contract.concatenating import concatenating as concatenating
    from properties.contract.implementation import Implementation as Implementation
    from properties.contract.twins import Twin as Twin
    from properties.gatehouse.gate import gate as gate
    from properties.gatehouse.verdict import Verdict as Verdict
    from properties.portraits.portrait import Portrait as Portrait
    from properties.portraits.portrait import inspect as inspect
    from properties.verifier.judge import Judgement as Judgement
    from properties.verifier.judge import judge as judge
    from properties.verifier.replay import call as call
    from properties.verifier.replay import replay as replay
    from properties.verifier.report import Report as Report
    from properties.verifier.report import Violation as Violation
    from properties.verifier.verify import verify as verify

# Loaded when first used: most programs need a few of them.
_WHERE = {
    "AbortedError": "contract.aborts",
    "BatchedDecoder": "contract.caches",
    "Decoder": "contract.caches",
    "Implementation": "contract.implementation",
    "Judgement": "verifier.judge",
    "Portrait": "portraits.portrait",
    "Report": "verifier.report",
    "Twin": "contract.twins",
    "Verdict": "gatehouse.verdict",
    "Violation": "verifier.report",
    "call": "verifier.replay",
    "concatenating": "contract.concatenating",
    "gate": "gatehouse.gate",
    "inspect": "portraits.portrait",
    "judge": "verifier.judge",
    "parametrize_with_laws": "conformance",
    "replay": "verifier.replay",
    "verify": "verifier.verify",
}
__all__ = [
    "AbortedError",
    "BatchedDecoder",
    "Decoder",
    "Implementation",
    "Judgement",
    "Portrait",
    "Report",
    "Twin",
    "Verdict",
    "Violation",
    "call",
    "concatenating",
    "gate",
    "inspect",
    "judge",
    "parametrize_with_laws",
    "replay",
    "verify",
]

if (
    __name__ == "properties" and shadowing()
):  # then `oracles` or `spec` is not ours: the package under our own name finds both
    sys.modules[__name__] = import_module("attnspec.properties")


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'properties' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
