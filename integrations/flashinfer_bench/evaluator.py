"""An evaluator of flashinfer-bench that judges attention by proved error limits.

    from flashinfer_bench.bench.evaluators import registry
    from evaluator import AttnspecEvaluator

    registry._EVALUATORS.append(AttnspecEvaluator)

It takes the definitions of ragged, paged and latent attention; their solutions are then judged by
attnspec instead of rtol and atol. Timing does not change.
"""

import traceback
from typing import Any

import torch
from definitions import is_judged, judge_of
from flashinfer_bench.bench.evaluators.default import DefaultEvaluator
from flashinfer_bench.bench.evaluators.utils import allocate_outputs, normalize_result
from flashinfer_bench.bench.utils import make_eval
from flashinfer_bench.data import Correctness, Definition, EvaluationStatus

__all__ = ["AttnspecEvaluator"]


class AttnspecEvaluator(DefaultEvaluator):
    """Judges the outputs of a solution by the error limits of its arithmetic."""

    @classmethod
    def can_evaluate(cls, definition: Definition) -> bool:
        """Return whether attnspec judges the definition."""
        return is_judged(definition.model_dump(mode="json"))

    @classmethod
    def check_correctness(
        cls,
        definition: Definition,
        sol_runnable: Any,
        inputs: list[list[Any]],
        ref_outputs: list[list[Any]],
        cfg: Any,
        log_path: str,
        device: str,
    ) -> tuple[Any, Any]:
        """Return the correctness over all trials, and the evaluation of the first wrong one, or None."""
        plain, largest = definition.model_dump(mode="json"), 0.0
        for given, reference in zip(inputs, ref_outputs, strict=True):
            judge = judge_of(plain, dict(zip(definition.inputs, given, strict=True)))
            try:
                outputs = cls._outputs(definition, sol_runnable, given, device)
            except Exception:
                traceback.print_exc()
                return None, make_eval(status=EvaluationStatus.RUNTIME_ERROR, device=device, log_path=log_path)
            for status, differs in (("INCORRECT_SHAPE", "shape"), ("INCORRECT_DTYPE", "dtype")):
                pairs = zip(outputs, reference, strict=True)
                if any(getattr(out, differs) != getattr(wanted, differs) for out, wanted in pairs):
                    return None, make_eval(status=EvaluationStatus[status], device=device, log_path=log_path)
            verdict = judge(outputs)
            largest = max(largest, verdict.error)
            found = Correctness(extra={"error_over_limit": largest, "attnspec": str(verdict)})
            if not verdict:
                status = EvaluationStatus.INCORRECT_NUMERICAL
                return found, make_eval(status, device, log_path, correctness=found, extra_msg=str(verdict))
        return found, None

    @staticmethod
    def _outputs(definition: Definition, runnable: Any, given: list[Any], device: str) -> list[Any]:
        """Return the outputs of a solution, in its calling style."""
        with torch.no_grad():
            if runnable.metadata.destination_passing_style:
                outputs = allocate_outputs(definition, given, device)
                runnable(*given, *outputs)
            else:
                outputs = normalize_result(definition, runnable(*given), device)
        if torch.cuda.is_available():
            torch.cuda.synchronize(device)
        return outputs
