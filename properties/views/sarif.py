"""Writes a report as SARIF 2.1.0, which code scanning shows next to the code: a result for each
cause, at the function of the operation.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from properties.contract.names import parts_of
from properties.verifier.report import Report
from properties.views.results import Result, results
from properties.views.violation import statement_of

__all__ = ["sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FINGERPRINT = "primaryLocationLineHash"  # the only name by which code scanning recognises a result


def sarif(report: Report) -> str:
    """Return the SARIF text of a report, with only the rules that its results need."""
    found = results(report)
    rules = list(dict.fromkeys(result.law for result in found))
    environment = report.settings.get("environment", {})
    compared = bool(report.settings.get("baseline"))
    run = {
        "tool": {
            "driver": {
                "name": "attnspec",
                "version": environment.get("attnspec", "unknown"),
                "rules": [_rule(law) for law in rules],
            }
        },
        "invocations": [{"executionSuccessful": not report.interrupted}],
        "results": [_result(result, rules.index(result.law), compared) for result in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _rule(law: str) -> dict[str, Any]:
    name, operation = parts_of(law)
    statement = statement_of(name, operation) or f"{name}."
    return {
        "id": law,
        "shortDescription": {"text": law},
        "fullDescription": {"text": statement},
        "help": {"text": f"{statement}\n\n`attnspec explain '{name}'` says more."},
    }


def _result(result: Result, rule: int, compared: bool) -> dict[str, Any]:
    known = sha256(f"{result.implementation}\n{result.law}\n{result.status}".encode(errors="replace")).hexdigest()
    found: dict[str, Any] = {
        "ruleId": result.law,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": f"{result.title}. {result.summary}"},
        "partialFingerprints": {_FINGERPRINT: f"{known[:16]}:1"},
        "properties": {"implementation": result.implementation, "laws": list(result.laws)},
    }
    if result.file:
        found["locations"] = [
            {"physicalLocation": {"artifactLocation": _file(result.file), "region": {"startLine": result.line}}}
        ]
    return found | ({"baselineState": "unchanged" if result.known else "new"} if compared else {})


def _file(name: str) -> dict[str, str]:
    path = Path(name)
    return {"uri": path.as_uri()} if path.is_absolute() else {"uri": quote(path.as_posix()), "uriBaseId": "%SRCROOT%"}
