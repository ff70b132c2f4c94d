"""Draws RoPE: pairs of channels that rotate, each by its own angle, and a channel without a
partner.
"""

import numpy as np
from matplotlib.figure import Figure

import oracles
from properties.views.html.figures.drawing import INK, MARKERS, QUIET, RULE, SERIES, Picture, Table, drawn

__all__ = ["rotation"]

_WIDTH, _LENGTH, _BASE = 5, 9, 10.0


def rotation() -> Picture:
    """Return the picture of two pairs at positions 0 to 8, and of the channel without a partner
    under both conventions.
    """
    x = np.tile([1.0, 0.0, 1.0, 0.0, 1.0], (_LENGTH, 1))
    literal = oracles.rope(x, conventions=oracles.Conventions(rope_base=_BASE)).mid
    passed = oracles.rope(x, conventions=oracles.Conventions(rope_base=_BASE, odd_lane="passthrough")).mid[:, -1]
    positions = np.arange(_LENGTH)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.25))
        for pair, axes in enumerate(panels[:2]):
            circle = np.linspace(0, 2 * np.pi, 200)
            axes.plot(np.cos(circle), np.sin(circle), color=RULE, linewidth=0.8)
            a, b = literal[:, 2 * pair], literal[:, 2 * pair + 1]
            for position in positions:
                axes.plot([0, a[position]], [0, b[position]], color=SERIES[pair], linewidth=0.9, alpha=0.5)
            axes.plot(a, b, MARKERS[pair], color=SERIES[pair])
            for position in positions:
                axes.annotate(
                    str(position), (1.2 * a[position], 1.2 * b[position]), ha="center", va="center", fontsize=8
                )
            axes.set_title(f"channels {2 * pair} and {2 * pair + 1}")
            axes.set(aspect="equal", xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), xticks=(), yticks=())
            axes.spines[:].set_visible(False)
        axes = panels[2]
        axes.axhline(0, color=RULE, linewidth=0.8)
        axes.plot(positions, literal[:, -1], marker=MARKERS[2], color=SERIES[2])
        axes.plot(positions, passed, marker=MARKERS[3], color=SERIES[3])
        axes.annotate(
            "× (cos θ + sin θ)",
            (8, literal[:, -1].max()),
            (0, 6),
            textcoords="offset points",
            ha="right",
            color=SERIES[2],
        )
        axes.annotate("passed through", (8, 1), (-2, -13), textcoords="offset points", ha="right", color=SERIES[3])
        axes.set_title("channel 4, without a partner")
        axes.set_xlabel("position", color=INK)
        axes.set(ylim=(0.0, 1.75), yticks=(0, 0.5, 1, 1.5), xticks=positions[::2])
        axes.tick_params(color=QUIET)

    rows = tuple(
        (str(position), *(f"{value:.4f}" for value in (*literal[position], passed[position]))) for position in positions
    )
    return Picture(
        "rotation",
        "RoPE: pairs that rotate, and the odd channel",
        "Each pair of channels rotates by its own angle from one position to the next; its length does not change. "
        "The last "
        "channel of an odd width has no partner: the literal definition multiplies it by cos θ + sin θ, which "
        "changes its "
        "length; other definitions leave it unchanged.",
        "Two circles with the positions 0 to 8 marked: the pair of channels 0 and 1 rotates by one radian at each "
        "step, the "
        f"pair of channels 2 and 3 by {_BASE ** (-2 / _WIDTH):.2f}. A chart of channel 4: the literal convention "
        f"changes it "
        f"from 1 to {literal[-1, -1]:.4f}; passed through it stays 1.",
        drawn("rotation", draw, height=2.6),
        Table(
            (
                "position",
                "channel 0",
                "channel 1",
                "channel 2",
                "channel 3",
                "channel 4, literal",
                "channel 4, passed through",
            ),
            rows,
        ),
        f"Width {_WIDTH}, x = (1, 0, 1, 0, 1); base {_BASE:g} in place of 10000, so that the slow pair visibly "
        f"rotates.",
    )
