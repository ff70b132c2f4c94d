"""Known bugs of the positions of tokens in padded sequences."""

from functools import partial
from typing import Any

import numpy as np

from properties.bugs.bug import Register
from properties.bugs.kernels import rounded_to
from properties.bugs.reference_positions import position_ids, with_padding

bug = Register()
in_positions = partial(bug.in_operation, "position_ids")
_COUNTED = "tokens are counted from 0, and padding is where its convention puts it"
_MORE_PADDING = "more padding moves no token"
_BATCH = "batch elements are computed independently"


@in_positions(
    law=_MORE_PADDING,
    effect="A prompt with padding before it has other outputs than alone.",
    repair="Take the running sum of the attention mask, minus 1.",
    citations="unslothai/unsloth#3699; ndif-team/nnsight#672; TransformerLensOrg/TransformerLens#1609",
)
def position_ids_ignore_the_mask(attention_mask: Any) -> Any:
    """The code counts padding too: entry j has the position j."""
    return np.broadcast_to(np.arange(attention_mask.shape[-1]), attention_mask.shape).copy()


@in_positions(
    law=_COUNTED,
    effect="The last position is beyond a table of n rows.",
    repair="Subtract 1 from the running sum.",
    citations="huggingface/transformers#11242; PrimeIntellect-ai/prime-rl#3466",
)
def position_ids_from_one(attention_mask: Any) -> Any:
    """The code takes the running sum of the mask, and does not subtract 1."""
    return with_padding(np.cumsum(attention_mask, axis=-1), attention_mask)


@in_positions(
    law=_COUNTED,
    effect="A lookup of the position −1 raises, or reads the last row of the table.",
    repair="Write the position of padding after the running sum.",
    origin="the running sum minus 1 needs a fill; CLVP in transformers 5.24.0 has none",
)
def position_ids_of_padding_are_negative(attention_mask: Any) -> Any:
    """Padding has the running sum minus 1 too: −1 before the first token."""
    return np.cumsum(attention_mask, axis=-1) - 1


@in_positions(
    law=_COUNTED,
    effect="A search by position finds padding beside tokens.",
    repair="Write the position of padding wherever the mask is 0.",
    origin="a clamp at 0 repairs padding before the tokens alone; compare gpt2_helper.py in onnxruntime 1.32",
)
def position_ids_of_padding_repeat(attention_mask: Any) -> Any:
    """Padding after a token repeats the position of this token."""
    count = np.cumsum(attention_mask, axis=-1)
    return with_padding(count - 1, count > 0)


@in_positions(
    law=_COUNTED,
    effect="A lookup fails where the id of the token is beyond the table of positions.",
    repair="Write the position of padding.",
    citations="torch-spyre/sendnn-inference#495",
)
def position_ids_of_padding_are_a_token_id(attention_mask: Any) -> Any:
    """Padding has the id of the padding token, 50256 here."""
    return np.where(attention_mask == 1, position_ids(attention_mask), 50256)


@in_positions(
    law=_MORE_PADDING,
    effect="Tokens after padding between tokens have positions that are too large.",
    repair="Take the running sum of the attention mask, minus 1.",
    citations="TransformerLensOrg/TransformerLens#1610",
)
def position_ids_from_the_first_token(attention_mask: Any) -> Any:
    """The code counts padding between tokens."""
    counted = np.maximum.accumulate(attention_mask, axis=-1)
    return with_padding(np.cumsum(counted, axis=-1) - 1, attention_mask)


@in_positions(
    law=_BATCH,
    effect="Sequences after the first have positions beyond their lengths.",
    repair="Sum along the last axis.",
    origin="in NumPy a running sum without an axis flattens the array",
)
def position_ids_run_through_the_batch(attention_mask: Any) -> Any:
    """The running sum goes on from one sequence of the batch to the next."""
    count = np.cumsum(attention_mask).reshape(attention_mask.shape)
    return with_padding(count - 1, attention_mask)


@in_positions(
    law=_COUNTED,
    effect="Answers to long prompts repeat.",
    repair="Keep positions in integers or in float32.",
    citations="openvinotoolkit/openvino#33214",
)
def position_ids_in_float16(attention_mask: Any) -> Any:
    """The code rounds positions to float16, which has no odd integers above 2048."""
    return rounded_to(11, position_ids(attention_mask)).astype(np.int64)
