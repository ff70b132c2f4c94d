"""Pictures of how implementations are judged, and of what is known about those who judge: one module for each idea."""

from collections.abc import Callable

from properties.views.html.figures import angles, criteria, errors, kills, masks, rotation, row, sinusoid
from properties.views.html.figures.drawing import Picture

__all__ = ["FIGURES"]

FIGURES: tuple[Callable[[], Picture | None], ...] = (
    row.budget_of_a_row,
    errors.error_against_size,
    errors.error_against_position,
    angles.error_of_angle_tables,
    criteria.what_criteria_see,
    kills.kill_matrix,
    masks.masks,
    sinusoid.sinusoid,
    rotation.rotation,
)
"""The pictures in the order of the page. Those of measurements that a checkout keeps in docs/ are None where there is none."""
