"""Every metric against its plain definition on random well-formed inputs.

Metrics that do their own arithmetic meet a thousand inputs in every run; those that hand everything to scikit-learn or
scipy, which takes milliseconds a call, a hundred, and a thousand in the slow proof.
"""

import numpy as np
import pytest
from metric_cases import VARIANTS, draw
from metric_references import REFERENCES, edits
from sklearn import metrics as reference

from mlexpert.tasks.metrics import METRICS, evaluate
from mlexpert.tasks.metrics.text import distance

HANDED_ON = {
    "accuracy", "balanced_accuracy", "g_mean", "f1", "micro_f1", "weighted_f1", "f_beta", "jaccard", "kappa", "qwk",
    "mcc", "auc", "multiclass_auc", "average_precision", "weighted_auc", "bias_auc", "hamming", "subset_accuracy",
    "multilabel_f", "multilabel_jaccard", "lrap", "lwlrap", "rmse", "mae", "wmae", "mse", "medae", "rmsle", "mape",
    "r2", "log_mae", "poisson_deviance", "pearson", "spearman", "pinball", "volume_overlap",
}  # fmt: skip
OWN = sorted(VARIANTS.keys() - HANDED_ON)


def compare(name: str, inputs: int) -> None:
    for seed in range(inputs):
        case = draw(name, seed % len(VARIANTS[name]), np.random.default_rng((7, seed)))
        found = evaluate(case.metric, case.answers, case.predictions, len(case.labels))
        settings = {**case.metric.chosen, **case.answers.beside}
        expected = REFERENCES[name](case.answers.values, case.predictions, len(case.labels), **settings)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9), (name, seed)


def test_every_metric_has_a_reference():
    assert REFERENCES.keys() == VARIANTS.keys() == METRICS.keys() and METRICS.keys() >= HANDED_ON


@pytest.mark.parametrize("name", OWN)
def test_a_thousand_inputs(name):
    compare(name, 1000)


@pytest.mark.parametrize("name", sorted(HANDED_ON))
def test_a_hundred_inputs(name):
    compare(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HANDED_ON))
def test_a_thousand_inputs_of_what_is_handed_on(name):
    compare(name, 1000)


def test_what_scikit_learn_has_too():
    rng = np.random.default_rng(0)
    for _ in range(50):
        grades, scores = rng.integers(0, 4, 9).astype(float), rng.integers(0, 6, 9) / 5.0
        grades[0], k = 1.0, int(rng.integers(1, 10))
        found = METRICS["ndcg"].score(grades, scores, 0, k=k, gain="linear", empty="skip")
        assert found == pytest.approx(reference.ndcg_score(grades[None], scores[None], k=k))
        truth, shares = rng.integers(0, 4, 9), rng.dirichlet(np.ones(4), 9)
        found = METRICS["top_k_accuracy"].score(truth, shares, 4, k=2)
        assert found == pytest.approx(reference.top_k_accuracy_score(truth, shares, k=2, labels=range(4)))


def test_distances_of_long_texts():
    rng = np.random.default_rng(0)
    for _ in range(20):
        one, other = ("".join(rng.choice(list("abcé"), int(rng.integers(60, 200)))) for _ in range(2))
        assert distance(one, other) == edits(one, other)


def test_concordance_beyond_the_rows_that_are_compared_directly():
    rng = np.random.default_rng(0)
    for rows in (65, 200, 513):
        times, guess = rng.integers(1, 60, rows).astype(float), rng.integers(0, 40, rows).astype(float)
        event = (rng.random(rows) < 0.5).astype(float)
        found = METRICS["concordance"].score(times, guess, 0, predicts="risk", event=event)
        assert found == pytest.approx(REFERENCES["concordance"](times, guess, 0, predicts="risk", event=event))


def test_cuboids_turned_by_an_eighth():
    """Two squares of side 1, one turned by 45 degrees, share 2 (sqrt 2 - 1)."""
    case = draw("cuboid_map", 0, np.random.default_rng(0))
    both = 2 * (np.sqrt(2) - 1)
    overlap = both / (2 - both)
    truth, found = case.answers.values[:1].copy(), case.answers.values[:1].copy()
    truth[0] = truth[0]._replace(labels=("car",), values=np.array([[1.0, 0, 0, 0, 1, 1, 1, 0]]))
    found[0] = truth[0]._replace(values=np.array([[1.0, 0, 0, 0, 1, 1, 1, np.pi / 4]]))
    for threshold, expected in ((overlap - 1e-6, 1.0), (overlap + 1e-6, 0.0)):
        assert METRICS["cuboid_map"].score(truth, found, 0, thresholds=[threshold]) == expected
