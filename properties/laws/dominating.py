"""Laws of attention and its derivatives on inputs that expose what random ones hide: a few keys of large scores share all the weight."""

from typing import Any

from properties.law import Laws
from properties.strategies.dominating import LONG, dominated, dominated_jvp, dominated_vjp
from properties.subject import Subject

law = Laws()
long = Laws()
"""Laws of the long plan: they take memory and seconds for a case."""

SDPA = "scaled_dot_product_attention"
VJP, JVP = f"{SDPA}_vjp", f"{SDPA}_jvp"


@law(SDPA, JVP, cases={SDPA: dominated, JVP: dominated_jvp}, agreement=True, effort=0.25)
def few_dominating_keys_share_the_weight(subject: Subject, *case: Any) -> None:
    """For up to 8192 keys, a few with scores of 10² to 10⁴, and one-hot values: the weights are read out right, and their tangents.

    It sees products and inputs of fewer bits, a scale that is off by a little, and a missing last key, at every length. Within budget.
    """
    subject.within(subject(*case))


@law(VJP, cases=dominated_vjp, agreement=True, effort=0.25)
def few_dominating_keys_share_the_gradient(subject: Subject, *case: Any) -> None:
    """For up to 8192 keys, a few with scores of 10² to 10⁴, and one-hot values: the gradients are those of Σ grad_out ⊙ out.

    Within budget.
    """
    for gradient in subject(*case):
        subject.within(gradient)


@long(SDPA, JVP, cases={SDPA: lambda i: dominated(i, LONG), JVP: lambda i: dominated_jvp(i, LONG)}, agreement=True, effort=0.03)
def few_dominating_keys_of_131072_share_the_weight(subject: Subject, *case: Any) -> None:
    """For 131072 keys and 131071, likewise: the weights are read out right, and their tangents.

    Within budget.
    """
    subject.within(subject(*case))


@long(VJP, cases=lambda i: dominated_vjp(i, LONG), agreement=True, effort=0.03)
def few_dominating_keys_of_131072_share_the_gradient(subject: Subject, *case: Any) -> None:
    """For 131072 keys and 131071, likewise: the gradients are those of Σ grad_out ⊙ out.

    Within budget.
    """
    for gradient in subject(*case):
        subject.within(gradient)
