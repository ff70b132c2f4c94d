"""Mutated files are read or refused with a sentence: `python mutated.py NUMBER` prints how many were
refused, and how many read.
"""

import random
import sys
import tempfile
from pathlib import Path

import numpy as np

from vectors import judged

TELLING = b'{}[]",:\\/0129-e. tfn\0\xff'
DATA = Path(__file__).parents[2] / "data"


def mutated(chance, raw):
    """Bytes with up to four of them changed, removed, or repeated from elsewhere."""
    work = bytearray(raw)
    for _ in range(chance.randrange(1, 5)):
        at, start, span = chance.randrange(len(work) + 1), chance.randrange(len(work) + 1), chance.randrange(48)
        kind = chance.randrange(5)
        if kind == 0:
            work[at : at + 1] = bytes([chance.choice(TELLING)])
        elif kind == 1:
            work[at : at + 1] = bytes(byte ^ 1 << chance.randrange(8) for byte in work[at : at + 1])
        elif kind == 2:
            del work[at : at + span]
        elif kind == 3:
            work[at : at + span] = work[start : start + span]
        elif not chance.randrange(8):
            del work[at:]
    return bytes(work)


def main(number):
    """Judge a function by so many mutated files."""
    chance, refused = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(number):
            name = chance.choice(("rotate_half", "combine_masks", "alibi_slopes", "padding_mask"))
            which = chance.randrange(3)
            for kind, kept in (("json", 1), ("safetensors", 0)):
                raw = (DATA / f"{name}.{kind}").read_bytes()
                Path(folder, f"{name}.{kind}").write_bytes(raw if which == kept else mutated(chance, raw))
            try:
                list(judged(Path(folder, f"{name}.json"), lambda **given: np.zeros(1), "float64"))
            except (ValueError, OSError):  # an OSError if `tensors` names another file
                refused += 1
    print(f"{refused} refused, {number - refused} read")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main(int(sys.argv[1]))
