"""How options' texts are read; each raises argparse's error, which says what the text should be."""

import argparse
import re

__all__ = ["duration", "memory", "natural", "positive", "whole"]


def natural(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from 1.")
    return int(text)


def whole(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a whole number from 0.")
    return int(text)


def duration(text: str) -> float:
    """A time in seconds, of 60s, 5m or 1h."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(s|m|h)?", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a time, as 60s, 5m or 1h.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def positive(text: str) -> float:
    """A positive number."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be a positive number.")
    return number


def memory(text: str) -> int:
    """A number of bytes, of 512M or 4G."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([MGT])", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}, but should be an amount of memory, as 512M or 4G.")
    return int(float(found[1]) * {"M": 2**20, "G": 2**30, "T": 2**40}[found[2]])
