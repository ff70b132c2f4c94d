"""Draws pictures of how attnspec judges implementations, one module for each idea."""

from collections.abc import Callable

from properties.views.html.figures import angles, errors, masks, rotation, row, sinusoid
from properties.views.html.figures.drawing import Picture

__all__ = ["FIGURES"]

FIGURES: tuple[Callable[[], Picture], ...] = (
    row.budget_of_a_row,
    errors.error_against_size,
    errors.error_against_position,
    angles.error_of_angle_tables,
    masks.masks,
    sinusoid.sinusoid,
    rotation.rotation,
)
"""The functions that draw the pictures, in the order of the page."""
