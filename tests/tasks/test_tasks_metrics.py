"""What holds for every metric: direction, best predictions, order of rows; how answers and settings are refused."""

import math

import numpy as np
import pytest
from metric_cases import EACH, draw
from scipy import sparse

from mlexpert.tasks.metrics import (
    METRICS,
    Answers,
    InvalidPrediction,
    Needs,
    UndefinedMetric,
    bind,
    encode,
    evaluate,
    number,
    perfect,
    read_answers,
    rows_sum_to_one,
)
from mlexpert.tasks.metrics.record import NUMERIC

LOWER = {
    "error_rate", "logloss", "brier", "hamming", "rmse", "mae", "wmae", "mse", "medae", "rmsle", "mape", "rmspe",
    "smape", "mase", "log_mae", "poisson_deviance", "pinball", "crps", "kl_divergence", "angular_error",
    "distance_quantiles", "levenshtein",
}  # fmt: skip
BEST = {"log_mae": math.log(1e-9), "laplace": -math.log(70 * math.sqrt(2))}  # else 0 for losses, 1 for the others
DRAWS = 8


def drawn(name, variant):
    return [draw(name, variant, np.random.default_rng((variant, seed))) for seed in range(DRAWS)]


def score(case, predictions=None):
    given = case.predictions if predictions is None else predictions
    return evaluate(case.metric, case.answers, given, len(case.labels))


def test_directions():
    assert {name for name, metric in METRICS.items() if metric.lower_is_better} == LOWER
    assert all(name == metric.name for name, metric in METRICS.items())


# ---------------------------------------------------------------- every metric
@pytest.mark.parametrize(("name", "variant"), EACH)
def test_perfect_predictions_score_best_and_no_others_better(name, variant):
    for case in drawn(name, variant):
        best = score(case, perfect(case.metric, case.answers, len(case.labels)))
        if case.metric.chosen.get("empty") != "zero":  # rows that nobody can answer count 0
            expected = BEST.get(name, 0.0 if case.metric.lower_is_better else 1.0)
            assert best == pytest.approx(expected, abs=1e-12)
        found = score(case)
        assert found >= best - 1e-12 if case.metric.lower_is_better else found <= best + 1e-12


@pytest.mark.parametrize(("name", "variant"), [each for each in EACH if each[0] != "box_map"])
def test_the_order_of_rows_does_not_matter(name, variant):
    """Of box_map it does: boxes of equal confidence are taken in the order of the rows, as in the COCO program."""
    for case in drawn(name, variant):
        order = np.random.default_rng(0).permutation(case.answers.rows)
        beside = {role: array[order] for role, array in case.answers.beside.items()}
        moved = Answers(case.answers.values[order], beside)
        found = evaluate(case.metric, moved, case.predictions[order], len(case.labels))
        assert found == pytest.approx(score(case), abs=1e-12)


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_scores_are_python_floats(name, variant):
    case = drawn(name, variant)[0]
    assert type(score(case)) is float
    if case.predictions.dtype.kind == "f":
        assert type(score(case, case.predictions.astype(np.float32))) is float


@pytest.mark.parametrize(("name", "variant"), [each for each in EACH if METRICS[each[0]].needs in NUMERIC])
def test_a_gap_is_never_scored(name, variant):
    case = drawn(name, variant)[0]
    for gap in (math.nan, math.inf, -math.inf):
        predictions = case.predictions.copy()
        predictions[1 if len(predictions) > 1 else 0] = gap
        with pytest.raises(InvalidPrediction, match="NaN or infinite"):
            score(case, predictions)


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_fewer_or_more_rows_are_a_fault_of_the_caller(name, variant):
    case = drawn(name, variant)[0]
    for predictions in (case.predictions[:-1], case.predictions[[0, *range(case.answers.rows)]]):
        with pytest.raises(ValueError, match="predictions for"):
            score(case, predictions)


def test_columns_of_predictions_are_counted():
    case = draw("crps", 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="5 columns of predictions for crps, which needs 6"):
        score(case, case.predictions[:, 1:])


@pytest.mark.parametrize(
    ("name", "settings", "n_targets", "n_labels", "columns", "sums"),
    [
        ("accuracy", {}, 1, 5, 1, False),
        ("logloss", {}, 1, 2, 1, False),
        ("logloss", {}, 1, 5, 5, True),
        ("logloss", {}, 3, 2, 3, False),
        ("auc", {}, 4, 2, 4, False),
        ("top_k_accuracy", {"k": 2}, 1, 7, 7, False),
        ("kl_divergence", {}, 6, 0, 6, True),
        ("pinball", {"quantiles": [0.1, 0.9]}, 1, 0, 2, False),
        ("crps", {"grid": [0, 1, 2]}, 1, 0, 3, False),
        ("laplace", {}, 1, 0, 2, False),
        ("multilabel_f", {"average": "micro"}, 1, 9, 1, False),
    ],
)
def test_what_a_submission_must_hold(name, settings, n_targets, n_labels, columns, sums):
    metric = bind(METRICS[name], settings)
    assert metric.columns(n_targets, n_labels) == columns
    assert rows_sum_to_one(metric, n_targets, n_labels) is sums


# ---------------------------------------------------------------- rows and groups
def test_rows_that_do_not_count_are_not_read():
    beside = {"keep": ["true", "False", "1"], "weight": ["1", "", "3"]}
    answers = read_answers(METRICS["wmae"], [["1", "no number", "3"]], (), beside)
    assert evaluate(METRICS["wmae"], answers, np.array([1.0, 99.0, 7.0]), 0) == 3.0


def test_groups_count_the_same_whatever_their_size():
    answers = read_answers(METRICS["rmse"], [["0", "0", "0", "0"]], (), {"group": ["b", "a", "b", "b"]})
    assert evaluate(METRICS["rmse"], answers, np.array([3.0, 1.0, 3.0, 3.0]), 0) == pytest.approx(2.0)


def test_a_bad_row_keeps_its_number_behind_groups_and_gaps():
    beside = {"group": ["b", "b", "a", "a"], "keep": ["1", "0", "1", "1"]}
    answers = read_answers(METRICS["rmsle"], [["1", "1", "1", "1"]], (), beside)
    with pytest.raises(InvalidPrediction, match="row 4: -1 is negative") as caught:
        evaluate(METRICS["rmsle"], answers, np.array([1.0, -5.0, 1.0, -1.0]), 0)
    assert caught.value.row == 3 and caught.value.problem == "-1 is negative"


def test_label_sets_in_one_cell_or_in_one_column_per_label():
    metric = bind(METRICS["multilabel_f"], {"average": "micro"})
    cells = read_answers(metric, [["x", "x y", ""]], ("x", "y"))
    columns = read_answers(metric, [["1", "1", "0"], ["0", "1", "0"]], ("x", "y"))
    assert (cells.values != columns.values).nnz == 0
    assert evaluate(metric, cells, sparse.csr_matrix([[1, 0], [1, 0], [0, 0]]), 2) == pytest.approx(0.8)


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("map_at_k", {}, "needs the setting 'k': a whole number"),
        ("map_at_k", {"k": 0}, "k=0 is not a whole number of at least 1"),
        ("map_at_k", {"k": True}, "k=True is not"),
        ("map_at_k", {"k": 5, "depth": 1}, "no setting 'depth'"),
        ("accuracy", {"k": 1}, "no setting 'k'"),
        ("f_beta", {"beta": math.inf, "average": "macro"}, "beta=inf"),
        ("f_beta", {"beta": 1, "average": "samples"}, "average='samples'"),
        ("pinball", {"quantiles": [0.9, 0.1]}, "quantiles"),
        ("pinball", {"quantiles": []}, "quantiles"),
        ("crps", {"grid": [1, 1]}, "grid"),
        ("crps", {"grid": "012"}, "grid"),
        ("weighted_auc", {"edges": [0, 1], "weights": [-1]}, "weights"),
        ("bias_auc", {"power": 0}, "power"),
        ("bias_auc", {"overall": 2}, "overall"),
        ("dice", {"shape": [4]}, "shape"),
        ("smape", {"percent": 1}, "percent"),
        ("qwk", {"low": 0.5, "high": 4}, "low"),
        ("volume_overlap", {"dice_weight": 1}, "dice_weight"),
    ],
)
def test_wrong_settings(name, settings, message):
    with pytest.raises(UndefinedMetric, match=message):
        bind(METRICS[name], settings)


def test_settings_may_be_changed_after_they_were_bound():
    first = bind(METRICS["map_at_k"], {"k": 1})
    answers = read_answers(first, [["a b"]])
    lists = np.array([None], dtype=object)
    lists[0] = ("c", "a")
    assert evaluate(first, answers, lists, 0) == 0.0
    assert evaluate(bind(first, {"k": 2}), answers, lists, 0) == 0.25


@pytest.mark.parametrize(
    ("name", "targets", "labels", "beside", "message"),
    [
        ("mae", [], (), {}, "no target column"),
        ("mae", [["1", "2"], ["1"]], (), {}, "'target 2' column has another number of rows"),
        ("mae", [["1", "2"]], (), {"weight": ["1"]}, "'weight' column has another number"),
        ("mae", [["1", "2"]], (), {"colour": ["1", "2"]}, "reads no 'colour' column"),
        ("mae", [["1", "2"]], (), {"weight": ["1", "x"]}, "'x' in row 2 of the 'weight' column is not a finite number"),
        ("mae", [["1", "2"]], (), {"keep": ["1", "maybe"]}, "'maybe' in row 2 of the 'keep' column is neither"),
        ("wmae", [["1", "2"]], (), {}, "needs a 'weight' column"),
        ("accuracy", [["a"], ["b"]], ("a", "b"), {}, "accuracy has 1 target columns, not 2"),
        ("angular_error", [["1"]], (), {}, "angular_error has 2 target columns, not 1"),
        ("lrap", [["1"]], ("0", "1"), {}, "2 or more target columns"),
        ("auc", [["0", "1"], ["0", "0"]], ("0", "1"), {}, "target column 2: auc needs"),
        ("multilabel_f", [["a b"]], ("a b", "c"), {}, "cannot stand in a list"),
        ("multilabel_f", [["1"], ["2"]], ("a", "b"), {}, "row 1: '2' is not one of the labels; one column per label"),
        ("exact_match", [["a"], ["b"]], (), {}, "exact_match has 1 target columns"),
    ],
)
def test_answers_that_do_not_fit(name, targets, labels, beside, message):
    metric = bind(METRICS[name], {"average": "micro"} if name == "multilabel_f" else {})
    with pytest.raises(UndefinedMetric, match=message):
        read_answers(metric, targets, labels, beside)


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


# ---------------------------------------------------------------- arrays as they are
def test_values_by_hand():
    truth, codes = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    assert METRICS["accuracy"].score(truth, codes, 2) == 0.75
    assert METRICS["macro_f1"].score(truth, codes, 2) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert METRICS["auc"].score(truth, np.array([0.1, 0.4, 0.35, 0.8]), 2) == 0.75
    assert METRICS["logloss"].score(truth, np.array([0.5, 0.5, 0.5, 0.5]), 2) == pytest.approx(math.log(2))
    assert METRICS["rmse"].score(np.array([0.0, 0.0]), np.array([3.0, 4.0]), 0) == pytest.approx(math.sqrt(12.5))
    assert METRICS["mae"].score(np.array([0.0, 0.0]), np.array([3.0, -4.0]), 0) == 3.5


def test_one_column_of_probabilities_is_the_positive_class():
    truth, positive = np.array([1, 0, 1]), np.array([0.9, 0.2, 0.6])
    both = np.stack([1 - positive, positive], axis=1)
    assert METRICS["logloss"].score(truth, positive, 2) == pytest.approx(METRICS["logloss"].score(truth, both, 2))


def test_absent_classes_count_zero_in_macro_f1():
    truth, codes = np.array([0, 0, 1]), np.array([0, 0, 1])
    assert METRICS["macro_f1"].score(truth, codes, 3) == pytest.approx(2 / 3)


def test_every_kind_of_prediction_has_a_metric():
    assert {metric.needs for metric in METRICS.values()} == set(Needs)


@pytest.mark.parametrize(
    ("text", "value"), [("1.5", 1.5), (" 2 ", 2.0), ("1e-3", 0.001), ("-0.0", 0.0), ("inf", math.inf)]
)
def test_numbers(text, value):
    assert number(text) == value


@pytest.mark.parametrize("text", ["", "nan", "1_0", "١", "0x1", "1,5", "True", "NA"])
def test_texts_that_are_not_numbers(text):
    assert math.isnan(number(text))
