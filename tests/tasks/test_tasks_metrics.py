import math

import numpy as np
import pytest
from sklearn import metrics as reference

from mlexpert.tasks.metrics import METRICS, UndefinedMetric, encode, number


def test_directions():
    assert {name: metric.lower_is_better for name, metric in METRICS.items()} == {
        "accuracy": False, "macro_f1": False, "auc": False, "logloss": True, "rmse": True, "mae": True,
    }  # fmt: skip


def test_values_by_hand():
    truth, codes = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert METRICS["accuracy"].score(truth, codes, 2) == 0.75
    assert METRICS["macro_f1"].score(truth, codes, 2) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert METRICS["auc"].score(truth, np.array([0.1, 0.4, 0.35, 0.8]), 2) == 0.75
    assert METRICS["logloss"].score(truth, np.array([0.5, 0.5, 0.5, 0.5]), 2) == pytest.approx(math.log(2))
    assert METRICS["rmse"].score(np.array([0.0, 0.0]), np.array([3.0, 4.0]), 0) == pytest.approx(math.sqrt(12.5))
    assert METRICS["mae"].score(np.array([0.0, 0.0]), np.array([3.0, -4.0]), 0) == 3.5


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_parity_with_scikit_learn(n_classes):
    draw = np.random.default_rng(n_classes)
    truth, codes = draw.integers(0, n_classes, 60), draw.integers(0, n_classes, 60)
    shares = draw.dirichlet(np.ones(n_classes), 60)
    labels = np.arange(n_classes)
    f1 = reference.f1_score(truth, codes, labels=labels, average="macro", zero_division=0.0)
    assert METRICS["macro_f1"].score(truth, codes, n_classes) == pytest.approx(f1, abs=1e-12)
    loss = reference.log_loss(truth, shares, labels=labels)
    assert METRICS["logloss"].score(truth, shares, n_classes) == pytest.approx(loss, abs=1e-12)


def test_one_column_of_probabilities_is_the_positive_class():
    truth, positive = np.array([1, 0, 1]), np.array([0.9, 0.2, 0.6])
    both = np.stack([1 - positive, positive], axis=1)
    loss = METRICS["logloss"].score(truth, positive, 2)
    assert loss == pytest.approx(METRICS["logloss"].score(truth, both, 2))
    assert loss == pytest.approx(reference.log_loss(truth, positive, labels=[0, 1]))


def test_absent_classes_count_zero_in_macro_f1():
    truth, codes = np.array([0, 0, 1]), np.array([0, 0, 1])
    assert METRICS["macro_f1"].score(truth, codes, 3) == pytest.approx(2 / 3)


def test_a_confident_miss_is_finite_and_an_exact_hit_is_nearly_zero():
    score = METRICS["logloss"].score
    assert score(np.array([1, 0]), np.array([0.0, 0.0]), 2) == pytest.approx(-math.log(1e-15) / 2)
    assert score(np.array([1, 0]), np.array([1.0, 0.0]), 2) == pytest.approx(0.0, abs=1e-14)


def test_logloss_with_one_class_in_the_truth():
    assert METRICS["logloss"].score(np.array([1, 1]), np.array([0.5, 0.5]), 2) == pytest.approx(math.log(2))


def test_logloss_rescales_rows():
    shares = np.array([[0.333, 0.333, 0.333]])
    assert METRICS["logloss"].score(np.array([0]), shares, 3) == pytest.approx(math.log(3))


@pytest.mark.parametrize("name", sorted(METRICS))
def test_scores_are_python_floats(name):
    truth = np.array([0, 1, 0, 1])
    predictions = truth if name in ("accuracy", "macro_f1") else truth.astype(np.float32) * 0.5
    assert type(METRICS[name].score(truth, predictions, 2)) is float


@pytest.mark.parametrize(
    ("name", "answers", "labels"),
    [
        ("auc", ["1", "1", "1"], ("0", "1")),
        ("auc", ["0", "1", "2"], ("0", "1", "2")),
        ("macro_f1", ["a", "b"], ("a", "b", "c")),
        ("accuracy", ["a", "z"], ("a", "b")),
        ("accuracy", [], ("a", "b")),
        ("accuracy", ["a", "a"], ("a",)),
        ("rmse", ["1.0", "nan"], ()),
        ("rmse", ["1.0", ""], ()),
        ("rmse", ["1.0"], ("a", "b")),
        ("mae", [], ()),
    ],
)
def test_answers_without_a_value_are_an_error(name, answers, labels):
    with pytest.raises(UndefinedMetric):
        METRICS[name].check(encode(METRICS[name], answers, labels), labels)


def test_words_for_missing_values_are_labels_like_any_other():
    assert encode(METRICS["accuracy"], ["NA", "None", "null"], ("None", "NA", "null")).tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), (" 2 ", 2.0), ("1e-3", 0.001), ("-0.0", 0.0), ("inf", math.inf)]
)
def test_numbers(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "nan", "1_0", "١", "0x1", "1,5", "True", "NA"])
def test_texts_that_are_not_numbers(text):
    assert math.isnan(number(text))
