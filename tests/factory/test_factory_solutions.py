"""Reference solutions: closed forms of the simple ones, order of the others, and the form of every prediction."""

import wave

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

from mlexpert.factory import features, seasonal, signals
from mlexpert.factory.beliefs import Goal, nothing, predictions
from mlexpert.factory.solutions import Problem, names, solve, without_inputs
from mlexpert.factory.targets import labels_of, learn
from mlexpert.tasks.metrics import METRICS, Needs, bind, spell

NO_RESIDUALS = np.empty((0, 0))


def constant(metric, targets, labels=(), rows=2):
    """Predictions of the constant solution for answers `targets`."""
    labels = labels or labels_of(metric, targets)
    learnt = learn(metric, targets, labels)
    belief = learnt.back(solve("constant", without_inputs(learnt, len(labels), rows), {}))
    return predictions(
        metric, belief, learnt.names, learnt.back(learnt.values) if learnt.goal is Goal.NUMBERS else NO_RESIDUALS
    )


# ---------------------------------------------------------------- constants, one for every kind of prediction
@pytest.mark.parametrize(
    ("metric", "settings", "targets", "expected"),
    [
        ("accuracy", {}, [["b", "a", "b"]], [1, 1]),
        ("auc", {}, [["0", "1", "1", "1"]], [0.75, 0.75]),
        ("auc", {}, [["0", "1"], ["1", "1"]], [[0.5, 1.0]] * 2),
        ("logloss", {}, [["a", "b", "c", "c"]], [[0.25, 0.25, 0.5]] * 2),
        ("rmse", {}, [["1", "2", "6"]], [3.0, 3.0]),
        ("mae", {}, [["1", "2", "6"]], [2.0, 2.0]),
        ("rmsle", {}, [["0", str(np.e**2 - 1)]], [np.e - 1] * 2),
        ("mape", {}, [["1", "10", "100"]], [10.0, 10.0]),
        ("rmse", {}, [["1", "3"], ["5", "7"]], [[2.0, 6.0]] * 2),
        ("qwk", {"low": 1, "high": 5}, [["1", "2", "5"]], [3.0, 3.0]),
        ("spearman", {}, [["1", "3"]], [2.0, 2.0]),
        ("kl_divergence", {}, [["0.2", "0.4"], ["0.8", "0.6"]], [[0.3, 0.7]] * 2),
        ("concordance", {"predicts": "risk"}, [["1", "3"]], [-2.0, -2.0]),
        ("ndcg", {"k": 10, "gain": "linear"}, [["0", "2"]], [1.0, 1.0]),
    ],
)
def test_constant(metric, settings, targets, expected):
    np.testing.assert_allclose(constant(bind(METRICS[metric], settings), targets), expected)


def test_constant_sets_ranks_and_texts():
    hamming = constant(METRICS["hamming"], [["x y", "x", "z x", ""]])
    assert hamming.toarray().tolist() == [[1, 0, 0], [1, 0, 0]]
    columns = constant(METRICS["hamming"], [["1", "0", "0"], ["0", "0", "1"]])
    assert columns.toarray().sum(axis=1).tolist() == [1, 1]  # none is likely: the likeliest
    ranked = constant(bind(METRICS["map_at_k"], {"k": 2}), [["b", "a", "b c", "c b"]])
    assert list(ranked) == [("b", "c")] * 2
    assert list(constant(METRICS["exact_match"], [["NA", "b", "NA"]])) == ["NA", "NA"]


def test_distributions_are_made_of_residuals():
    pinball = bind(METRICS["pinball"], {"quantiles": [0.25, 0.5, 0.75]})
    residuals = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    found = predictions(pinball, np.array([[10.0], [20.0]]), (), residuals)
    assert found.tolist() == [[9.0, 10.0, 11.0], [19.0, 20.0, 21.0]]
    crps = bind(METRICS["crps"], {"grid": [9.0, 10.0, 11.0]})
    assert predictions(crps, np.array([[10.0]]), (), residuals).tolist() == [[0.4, 0.6, 0.8]]
    value, confidence = predictions(METRICS["laplace"], np.array([[10.0]]), (), residuals)[0]
    assert (value, confidence) == (10.0, pytest.approx(np.sqrt(2)))


@pytest.mark.parametrize("needs", [Needs.RUNS, Needs.POINTS, Needs.BOXES, Needs.CUBOIDS])
def test_nothing_is_spelled_as_an_empty_cell_or_a_dash(needs):
    assert set(spell(needs, nothing(needs, 2))) <= {"", "-"}


# ---------------------------------------------------------------- models
def problem(goal: Goal, answers: np.ndarray, x: np.ndarray, z: np.ndarray, **more) -> Problem:
    pair = features.scaled(features.Pair(x, z))
    words = sparse.csr_matrix((len(x), 0)), sparse.csr_matrix((len(z), 0))
    return Problem((x, z), tuple(pair), words, goal, answers, **more)


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def test_every_model_learns_what_there_is_to_learn_and_gives_the_same_twice():
    draw = np.random.default_rng(0)
    x, z = draw.normal(size=(120, 3)), draw.normal(size=(60, 3))
    cases = {
        Goal.NUMBERS: (x[:, :1] * 3, z[:, 0] * 3, {}),
        Goal.CLASSES: ((x[:, :1] > 0).astype(int), z[:, 0] > 0, {"n_classes": 2}),
        Goal.SETS: ((x[:, :2] > 0).astype(int), z[:, 0] > 0, {}),
    }
    for goal, (answers, truth, more) in cases.items():
        given = problem(goal, answers, x, z, **more)
        beliefs: dict[str, np.ndarray] = {}
        for name in names(given):
            beliefs[name] = solve(name, given, beliefs)
            value = beliefs[name][:, 0, -1] if goal is Goal.CLASSES else beliefs[name][:, 0]
            if name == "constant":
                assert len(set(value)) == 1
            else:
                assert np.corrcoef(value, truth)[0, 1] > 0.6, (goal, name)
        assert {"linear", "boosted", "forest", "blend", "neighbours"} <= beliefs.keys()
        for name in ("forest", "few trees", "linear"):
            assert np.array_equal(solve(name, given, {}), beliefs[name])


def test_a_class_that_training_lacks_gets_no_share():
    x = np.arange(30.0)[:, None]
    given = problem(Goal.CLASSES, (x > 15).astype(int) * 2, x, x[:3], n_classes=3)
    for name in ("linear", "boosted"):
        shares = solve(name, given, {})
        assert (shares[:, 0, 1] == 0).all() and shares.sum(axis=2) == pytest.approx(1.0)


def test_the_nearest_text_is_copied():
    words = sparse.csr_matrix(np.eye(3)), sparse.csr_matrix(np.eye(3)[[2, 0]])
    answers = np.array(["a", "b", "c"], dtype=object)
    given = without_inputs(learn(METRICS["exact_match"], [answers.tolist()], ()), 0, 2)._replace(words=words)
    assert names(given) == ["constant", "nearest"] and solve("nearest", given, {}).tolist() == ["c", "a"]


# ---------------------------------------------------------------- features
def test_the_mean_of_a_label_leaves_its_own_row_out():
    found = features.target_means(["a", "a", "b"], ["a", "b", "new"], np.array([[1.0], [4.0], [7.0]]))
    prior = 4.0 * features.SHRUNK
    n = features.SHRUNK
    assert found.train_NxF[:, 0] == pytest.approx([(4 + prior) / (1 + n), (1 + prior) / (1 + n), prior / n])
    assert found.test_MxF[:, 0] == pytest.approx([(5 + prior) / (2 + n), (7 + prior) / (1 + n), 4.0])


def test_scaling_knows_only_training_rows_and_marks_gaps():
    pair = features.scaled(features.Pair(np.array([[1.0], [3.0], [np.nan]]), np.array([[np.nan], [1000.0]])))
    filled = np.array([1.0, 3.0, 2.0])
    assert pair.train_NxF[:, 0] == pytest.approx((filled - 2) / filled.std()) and pair.train_NxF[:, 1].tolist() == [
        0,
        0,
        1,
    ]
    assert pair.test_MxF.tolist() == [[0.0, 1.0], [5.0, 0.0]]


def test_columns_of_one_value_are_left_out():
    x = np.array([[1.0, np.nan, 5.0, 1.0], [2.0, np.nan, 5.0, np.nan], [1.0, np.nan, np.nan, 2.0]])
    assert features.varied(features.Pair(x, x[:1])).train_NxF.shape == (3, 2)


def test_the_strongest_columns_are_kept_in_their_order():
    y = np.arange(10.0)
    x = np.stack([np.ones(10), y, -y, np.tile([0.0, 1.0], 5)], axis=1)
    assert features.strongest(features.Pair(x, x[:2]), y, 2).train_NxF.tolist() == x[:, 1:3].tolist()


# ---------------------------------------------------------------- series
def test_the_season_is_found_and_repeated():
    values = np.tile([1.0, 5.0, 2.0, 8.0], 6)
    assert seasonal.season([values], 8) == 4
    drift = np.cumsum(np.ones(60)) + np.tile(np.arange(12.0) ** 2, 5)  # steps of one season are alike, not of one step
    assert seasonal.season([drift], 12) == 12 and seasonal.season([np.array([3.0])], 5) == 1
    assert seasonal.ahead(values[:-1], 4, 5).tolist() == [8.0, 1.0, 5.0, 2.0, 8.0]
    assert seasonal.ahead(np.array([1.0, 3.0, 5.0, 7.0]), 2, 3, seasons=2).tolist() == [3.0, 5.0, 3.0]
    assert seasonal.ahead(np.array([4.0]), 12, 2).tolist() == [4.0, 4.0]


def test_forecasts_go_by_group_and_time_whatever_the_order_of_rows():
    groups, times = ["b", "a", "a", "b"], np.array([2.0, 2.0, 1.0, 1.0])
    found = seasonal.forecasts(
        (groups, times, np.array([4.0, 2.0, 1.0, 3.0])), (["a", "c", "b", "a"], np.array([4.0, 3.0, 3.0, 3.0]))
    )
    assert found["last value"].tolist() == [2.0, 2.5, 4.0, 2.0]


# ---------------------------------------------------------------- files
def test_pictures_sounds_and_arrays_become_rows(tmp_path):
    from PIL import Image

    Image.new("RGB", (40, 20), (255, 0, 0)).save(tmp_path / "red.png")
    np.save(tmp_path / "steps.npy", np.arange(1024.0))
    for name, hertz in (("low", 250), ("high", 3000)):
        with wave.open(str(tmp_path / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((20_000 * np.sin(2 * np.pi * hertz * np.arange(4000) / 8000)).astype("<i2").tobytes())
    assert signals.signals([tmp_path / "red.png"])[0] == pytest.approx(76 / 255, abs=0.01)
    assert signals.signals([tmp_path / "steps.npy"])[0][:2] == pytest.approx([1.5, 5.5])
    low, high = signals.signals([tmp_path / "low.wav", tmp_path / "high.wav"])
    assert low[: signals.BANDS].argmax() < 5 < high[: signals.BANDS].argmax()
    (tmp_path / "broken.png").write_bytes(b"nothing")
    with pytest.raises(signals.UnreadableSignal, match=r"broken\.png"):
        signals.signals([tmp_path / "broken.png"])
