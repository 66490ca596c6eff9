"""What a policy is told about a task: the source's own words, then goal, metric, files, columns and form.

The second part is made from the files themselves, so it cannot disagree with them; it names every label that an answer
may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlexpert.tasks.metrics import METRICS, Needs
from mlexpert.tasks.task import Facts

MOST_COLUMNS = 120  # that are listed one by one
MOST_LABELS = 400

MEANINGS = {
    "accuracy": "the share of rows with the right label",
    "balanced_accuracy": "the mean of the recalls of all labels",
    "macro_f1": "the mean of the F1 scores of all labels",
    "micro_f1": "the F1 score of pooled counts",
    "weighted_f1": "the mean of the labels' F1 scores, weighted by how often they occur",
    "f1": "the F1 score of the last label",
    "mcc": "Matthews' correlation coefficient",
    "qwk": "quadratic weighted kappa, the agreement of ratings beyond chance",
    "auc": "the area under the ROC curve of the last label's score, averaged over the target columns",
    "multiclass_auc": "the area under the ROC curve, averaged over labels",
    "average_precision": "average precision of the last label's score",
    "logloss": "the mean negative logarithm of the probability given to the true label",
    "brier": "the mean squared error of the probability",
    "gini": "the normalised Gini coefficient",
    "rmse": "the root mean squared error, averaged over the target columns",
    "mse": "the mean squared error",
    "mae": "the mean absolute error, averaged over the target columns",
    "medae": "the median absolute error",
    "wmae": "the weighted mean absolute error",
    "rmsle": "the root mean squared error of log(1 + value)",
    "rmspe": "the root mean squared error in shares of the true value",
    "mape": "the mean absolute error in shares of the true value",
    "smape": "the mean absolute error in shares of the mean of truth and prediction",
    "mase": "the mean absolute error in units of a naive forecast's error",
    "r2": "the share of variance explained",
    "poisson_deviance": "the mean Poisson deviance",
    "pearson": "Pearson's correlation",
    "spearman": "Spearman's rank correlation",
    "concordance": "the share of comparable pairs in the right order",
    "hamming": "the share of labels that are wrong",
    "multilabel_f": "the F score of sets of labels",
    "lrap": "label ranking average precision",
    "ndcg": "normalised discounted cumulative gain",
    "map_at_k": "mean average precision of ranked lists",
    "exact_match": "the share of texts that are exactly right",
    "levenshtein": "the edit distance of the texts",
    "pinball": "the mean quantile loss",
    "crps": "the continuous ranked probability score",
}
_FORMS = {
    Needs.LABEL: "one of the labels",
    Needs.SCORE: "any number, larger where the label (the last of two) is more likely, or the grade higher",
    Needs.PROBABILITY: "probabilities between 0 and 1; several of one row sum to 1",
    Needs.NUMBER: "a number",
    Needs.RATING: "a whole number",
    Needs.CUMULATIVE: "probabilities that the value is at most the point; they never fall along a row",
    Needs.LABELS: "labels separated by blanks, or 0 and 1 where every label has a column",
    Needs.RANKED: "items separated by blanks, best first",
    Needs.TEXT: "a text",
    Needs.RUNS: "a mask as 'start length start length ...', pixels counted from 1; '-' for none",
}


def describe(title: str, text: str, facts: Facts, sizes: Mapping[str, tuple[int, int]], sample: Sequence[str]) -> str:
    """The page, in Markdown.

    Args:
      sizes: file in the public folder -> rows and columns.
      sample: the first lines of the sample submission.
    """
    parts = [
        f"# {title}",
        text.strip(),
        _goal(facts),
        _files(facts, sizes),
        _columns(facts),
        _submission(facts, sample),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _goal(facts: Facts) -> str:
    metric, targets = METRICS[facts.metric], ", ".join(f"`{name}`" for name in facts.target_columns[:MOST_COLUMNS])
    settings = ", ".join(f"{name} = {value}" for name, value in facts.settings.items())
    meaning = MEANINGS.get(facts.metric, "")
    lines = [
        "## Goal",
        f"Predict {targets} for every `{facts.id_column}` of the test rows.",
        f"Metric: `{facts.metric}`" + (f" ({settings})" if settings else "") + (f", {meaning}" if meaning else "")
        + f"; {'lower' if metric.lower_is_better else 'higher'} is better.",
    ]  # fmt: skip
    if facts.labels:
        shown = ", ".join(f"`{label}`" for label in facts.labels[:MOST_LABELS])
        lines.append(f"Labels ({len(facts.labels)}): {shown}{', ...' if len(facts.labels) > MOST_LABELS else ''}.")
    return "\n\n".join(lines)


def _files(facts: Facts, sizes: Mapping[str, tuple[int, int]]) -> str:
    lines = [f"- `{name}`: {rows:,} rows, {columns:,} columns" for name, (rows, columns) in sizes.items()]
    if "file" in facts.columns.values():
        column = next(name for name, kind in facts.columns.items() if kind == "file")
        lines.append(f"- `files/`: the files that column `{column}` names")
    return "\n".join(["## Files\n", *lines])


def _columns(facts: Facts) -> str:
    names = list(facts.columns)
    if not names:
        return ""
    lines = [f"- `{name}`: {_kind(name, facts)}" for name in names[:MOST_COLUMNS]]
    if len(names) > MOST_COLUMNS:
        lines.append(f"- ... and {len(names) - MOST_COLUMNS} more, up to `{names[-1]}`")
    return "\n".join(["## Columns\n", *lines])


def _kind(name: str, facts: Facts) -> str:
    if name in facts.target_columns:
        return "the target"
    return "the id" if name == facts.id_column else facts.columns[name]


def _submission(facts: Facts, sample: Sequence[str]) -> str:
    form = _FORMS.get(METRICS[facts.metric].needs, "as in the sample submission")
    told = f"A CSV file `submission.csv` like `sample_submission.csv`; each value is {form}."
    return "\n\n".join(["## Submission", told, "\n".join(["```", *sample, "```"])])
