"""Technical Writer: the task text that the policy reads. Short fixed lines; the target's name ends the text.

The text names files, columns, metric and id, and carries the note; it leaks neither the rule nor any label.
"""

from __future__ import annotations

from mlexpert.sandmle.data_strategist import Spec

DIRECTION = {
    "rmse": "lower is better",
    "mae": "lower is better",
    "auc": "higher is better",
    "accuracy": "higher is better",
}


def describe(spec: Spec) -> str:
    """The description in Markdown, 6-7 lines."""
    lines = [
        f"# {spec.domain.capitalize()}",
        "Files: `train.csv`, `test.csv`, `sample_submission.csv`. Key: `id`.",
        f"{'Pixels' if spec.kind == 'image' else 'Numeric'}: {features(spec)}{' with gaps' if spec.gaps else ''}.",
        *([f"{'Text' if spec.kind == 'text' else 'Category'}: {listed((spec.category,))}."] if spec.category else []),
        f"Metric: {spec.metric}, {DIRECTION[spec.metric]}.",
        f"Note: {spec.note}",
        f"Target: `{spec.target}`",
    ]
    return "\n".join(lines) + "\n"


def features(spec: Spec) -> str:
    return "`p0` to `p63`, 8 x 8" if spec.kind == "image" else listed(spec.numeric)


def listed(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in columns)
