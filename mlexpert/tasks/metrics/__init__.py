"""The metrics a task may use, on scikit-learn and scipy with the task's full label set or range passed explicitly.

Read `record` (what a metric is), `answers` and `evaluate` (how one is used) first; `docs/metrics.md` lists all of them
and their value in every edge case.

    metric = bind(METRICS["map_at_k"], {"k": 5})
    answers = read_answers(metric, [cells])              # raises UndefinedMetric: the task is at fault
    score = evaluate(metric, answers, predictions, 0)    # raises InvalidPrediction: the predictions are
"""

from collections.abc import Mapping

from mlexpert.tasks.metrics import (
    classification,
    correlation,
    detection,
    distribution,
    multilabel,
    probability,
    ranking,
    regression,
    segmentation,
    spatial,
    text,
)
from mlexpert.tasks.metrics.answers import Answers, encode, read_answers
from mlexpert.tasks.metrics.cells import BadCell, number, read, read_indicators, spell
from mlexpert.tasks.metrics.evaluate import evaluate, perfect
from mlexpert.tasks.metrics.probability import CLIP
from mlexpert.tasks.metrics.record import (
    SUM_TOLERANCE,
    InvalidPrediction,
    Metric,
    Needs,
    Setting,
    UndefinedMetric,
    bind,
    rows_sum_to_one,
)

FAMILIES = (
    classification, probability, multilabel, regression, correlation, distribution, spatial, ranking, text,
    segmentation, detection,
)  # fmt: skip
# Those that a task need not set anything for are ready to use; `bind` may still change their settings.
METRICS: Mapping[str, Metric] = {
    metric.name: metric if metric.undecided else bind(metric, {}) for family in FAMILIES for metric in family.METRICS
}

__all__ = [
    "CLIP",
    "METRICS",
    "SUM_TOLERANCE",
    "Answers",
    "BadCell",
    "InvalidPrediction",
    "Metric",
    "Needs",
    "Setting",
    "UndefinedMetric",
    "bind",
    "encode",
    "evaluate",
    "number",
    "perfect",
    "read",
    "read_answers",
    "read_indicators",
    "rows_sum_to_one",
    "spell",
]
