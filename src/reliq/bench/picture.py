"""Jobs done over time, as one SVG that needs nothing else."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 360, 70, 40
COLOURS: Final = (
    "#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#9a6700", "#57606a", "#0a7ea4",
)  # fmt: skip

Curve = Sequence[tuple[float, int]]


def picture(curves: Mapping[str, Curve]) -> str:
    """Draw each curve of (seconds, jobs) in a colour of its own, with its name and rate."""
    seconds = max((curve[-1][0] for curve in curves.values() if curve), default=1.0) or 1.0
    jobs = max((curve[-1][1] for curve in curves.values() if curve), default=1) or 1
    wide, high = WIDTH - LEFT - 220, HEIGHT - BOTTOM - 20

    def place(at: float, done: float) -> str:
        return f"{LEFT + at / seconds * wide:.1f},{20 + high - done / jobs * high:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<style>text { font: 12px system-ui, sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<path d="M{LEFT},20V{20 + high}H{LEFT + wide}" fill="none" stroke="#57606a"/>',
        f'<text x="{LEFT + wide}" y="{HEIGHT - 12}" text-anchor="end">{seconds:.1f} s</text>',
        f'<text x="{LEFT - 6}" y="28" text-anchor="end">{jobs:,}</text>',
        f'<text x="{LEFT - 6}" y="{24 + high}" text-anchor="end">0</text>',
        f'<text x="{LEFT}" y="14">jobs done</text>',
    ]
    for n, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[n % len(COLOURS)]
        points = " ".join(place(at, done) for at, done in [(0.0, 0), *curve])
        rate = curve[-1][1] / curve[-1][0] if curve and curve[-1][0] else 0.0
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>',
            f'<rect x="{WIDTH - 210}" y="{22 + n * 18}" width="10" height="10" fill="{colour}"/>',
            f'<text x="{WIDTH - 194}" y="{31 + n * 18}">{escape(name)}: {rate:,.0f}/s</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
