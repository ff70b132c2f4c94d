"""What becomes of a law under which an implementation ended its process, or never returned."""

from math import inf

from properties.command.messages import Entry
from properties.contract.operations import OPERATIONS
from properties.laws.twins import TWINS
from properties.verifier.call_record import CallRecord
from properties.verifier.report import Outcome, Violation, broken, reason_for
from properties.verifier.script import script, script_of_call

__all__ = ["death"]


def death(
    entry: Entry, law: str, operation: str, summary: str, calls: CallRecord, *notes: str, seconds: float = 0.0
) -> Outcome:
    """The outcome of a law under which an implementation did what ends a process, by the call that was noted last."""
    if calls.state == "calling another":
        why = f"Another implementation of its list, which was called by turns with it, {summary}; its own laws tell of that."
        return Outcome(law, operation, entry.name, "not applicable", seconds=seconds, reason=why)
    noted, case, shown = calls.noted, {}, ""
    if noted is None:
        summary += ", before any call of the implementation"
    else:
        case = dict(zip(OPERATIONS[noted.operation].parameters, noted.arguments, strict=False))
        where = entry.target, entry.pick, entry.override, entry.reading
        whole = Violation(law, operation, entry.name, "", case, inf)  # a path is called by its law alone
        shown = script(whole, *where) if law == TWINS else script_of_call(noted, *where)
        summary += f", in a call of {noted.operation}" if noted.operation != operation else ""
        summary += ", after the call had returned" if calls.state == "returned" else ""
        notes = (*([f"The arrays were {noted.layout}."] if noted.layout != "contiguous" else []), *notes)
    violation = Violation(law, operation, entry.name, f"{summary}.", case, inf, notes=notes, script=shown, shrunk=False)
    return broken(violation, reason_for(entry.deviations, violation.law_id), seconds=seconds)
