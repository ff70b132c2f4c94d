"""Makes the outcome of a law whose call ended the process, or never returned."""

from math import inf

from properties.contract.names import parts_of
from properties.contract.operations import OPERATIONS
from properties.laws.twins import TWINS
from properties.processes.child import Child
from properties.processes.messages import Entry
from properties.verifier.report import Outcome, Violation, broken, reason_for
from properties.verifier.script import script, script_of_call

__all__ = ["death"]


def death(entry: Entry, law_id: str, child: Child, seconds: float) -> Outcome:
    """Return the outcome of a law during which a child process died. The counterexample is the last
    call that the child recorded.
    """
    law, operation = parts_of(law_id)
    summary, notes, calls = child.how_it_ended(), child.last_output(), child.calls
    if calls.state == "calling another":
        other = "Another implementation of the list, which was called alternately with this one"
        reason = f"{other}, {summary}; see its own laws."
        return Outcome(law, operation, entry.name, "not applicable", seconds=seconds, reason=reason)
    noted, case, reproduction = calls.noted, {}, ""
    if noted is None:
        summary += ", before any call of the implementation"
    else:
        case = dict(zip(OPERATIONS[noted.operation].parameters, noted.arguments, strict=False))
        where = entry.target, entry.pick, entry.override, entry.reading
        whole = Violation(law, operation, entry.name, "", case, inf)
        # Only the law about twins calls another path of the implementation.
        reproduction = script(whole, *where) if law == TWINS else script_of_call(noted, *where)
        summary += f", in a call of {noted.operation}" if noted.operation != operation else ""
        summary += ", after the call had returned" if calls.state == "returned" else ""
        notes = [*([f"The arrays were {noted.layout}."] if noted.layout != "contiguous" else []), *notes]
    violation = Violation(
        *(law, operation, entry.name, f"{summary}.", case, inf),
        notes=tuple(notes),
        script=reproduction,
        shrunk=False,
    )
    return broken(violation, reason_for(entry.deviations, violation.law_id), seconds=seconds)
