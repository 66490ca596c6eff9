from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mlexpert.tasks.grading import Grader, probe
from mlexpert.tasks.metrics import METRICS
from mlexpert.tasks.tables import TaskError
from mlexpert.tasks.task import Thresholds
from mlexpert.types import Medal, Verdict, VerdictStatus

ANSWERS = {
    "auc": ([0, 1, 1, 0, 1], ("0", "1")),
    "accuracy": (["cat", "dog", "cat", "NA", "dog"], ("NA", "cat", "dog")),
    "macro_f1": (["cat", "dog", "cat", "NA", "dog"], ("NA", "cat", "dog")),
    "logloss": (["x", "y", "z", "x", "z"], ("x", "y", "z")),
    "rmse": ([1.5, -2.0, 3.25, 0.0, 1e-3], ()),
    "mae": ([1.5, -2.0, 3.25, 0.0, 1e-3], ()),
}


def hand_in(tmp_path, text: str):
    path = tmp_path / "submission.csv"
    path.write_text(text)
    return path


def with_true_sample_score(make_task, metric, **changes):
    """The same task twice: first to measure what its sample scores, then with that as its threshold."""
    answers, labels = ANSWERS[metric]
    score = (
        Grader(task := make_task(metric, answers, labels, **changes)).grade(task.public / "sample_submission.csv").score
    )
    lines = task.thresholds
    measured = Thresholds(lines.gold, lines.silver, lines.bronze, lines.median, score)
    return make_task(metric, answers, labels, thresholds=measured, **changes)


@pytest.mark.parametrize("metric", sorted(ANSWERS))
def test_sample_and_perfect_answers(make_task, metric):
    sample, perfect = probe(Grader(with_true_sample_score(make_task, metric)))
    assert sample.status is perfect.status is VerdictStatus.GRADED
    assert perfect.score == pytest.approx(0.0 if METRICS[metric].lower_is_better else 1.0, abs=1e-12)
    assert perfect.medal is Medal.GOLD and perfect.quality == 1.0 and perfect.above_median
    assert sample.quality == 0.0 and sample.medal is Medal.NONE
    assert sample.reason == "the same values as the sample submission"


def test_probe_finds_thresholds_that_were_not_measured(make_task):
    with pytest.raises(TaskError, match=r"the sample scores 0\.5, its threshold says 0\.3"):
        probe(Grader(make_task("auc", *ANSWERS["auc"], thresholds=Thresholds(0.9, 0.8, 0.7, 0.6, 0.3))))
    with pytest.raises(TaskError, match="below gold"):
        probe(Grader(make_task("auc", *ANSWERS["auc"], thresholds=Thresholds(1.1, 0.8, 0.7, 0.6, 0.5))))


def test_a_verdict_by_hand(make_task, tmp_path):
    grader = Grader(make_task("mae", [1.0, 2.0, 3.0, 4.0]))
    verdict = grader.grade(hand_in(tmp_path, "id,target\nr3,4.6\nr0,1\nr1,2\nr2,3\n"))
    assert verdict == Verdict(
        VerdictStatus.GRADED, "", pytest.approx(0.15), Medal.SILVER, True, True, pytest.approx((0.9 - 0.15) / 0.8)
    )


def test_rows_are_aligned_by_id_whatever_their_order(make_task, tmp_path):
    draw = np.random.default_rng(0)
    answers = draw.normal(size=50)
    grader = Grader(make_task("rmse", answers.tolist()))
    table = pd.DataFrame({"id": [f"r{i}" for i in range(50)], "target": answers + draw.normal(size=50)})
    scores = set()
    for seed in range(4):
        table.sample(frac=1.0, random_state=seed).to_csv(tmp_path / "s.csv", index=False)
        scores.add(grader.grade(tmp_path / "s.csv").score)
    assert len(scores) == 1


def test_answers_need_not_be_in_the_sample_order(make_task, tmp_path):
    answers = pd.DataFrame({"id": ["r2", "r0", "r1"], "target": [30.0, 10.0, 20.0]})
    grader = Grader(make_task("mae", [0.0, 0.0, 0.0], answers=answers))
    assert grader.grade(hand_in(tmp_path, "id,target\nr0,10\nr1,20\nr2,30\n")).score == 0.0


def test_integer_ids_survive_a_round_trip_through_pandas(make_task, tmp_path):
    task = make_task("mae", [1.0, 2.0], ids=[9007199254740992, 9007199254740993])
    sample = pd.read_csv(task.public / "sample_submission.csv")
    sample.assign(target=[1.0, 2.0]).to_csv(tmp_path / "s.csv", index=False)
    assert Grader(task).grade(tmp_path / "s.csv").score == 0.0


BAD = {
    None: VerdictStatus.ABSENT,
    "": VerdictStatus.UNREADABLE,
    'id,target\nr0,"': VerdictStatus.UNREADABLE,
    "id,target\nr0,0.1\n": VerdictStatus.INVALID,
    "id,target\nr0,nan\nr1,0.5\nr2,nan\nr3,nan\nr4,nan\n": VerdictStatus.INVALID,
}


@pytest.mark.parametrize("metric", ["auc", "rmse"])
def test_a_batch_goes_on_after_bad_files(make_task, tmp_path, metric):
    grader = Grader(make_task(metric, *ANSWERS[metric]))
    verdicts = [grader.grade(text if text is None else hand_in(tmp_path, text)) for text in BAD]
    assert [verdict.status for verdict in verdicts] == list(BAD.values())
    for verdict in verdicts:
        assert verdict.score is None and verdict.medal is Medal.NONE and verdict.quality == 0.0
        assert not verdict.above_median and verdict.lower_is_better == grader.task.lower_is_better


def test_unanswered_rows_never_improve_a_score(make_task, tmp_path):
    """One perfect row and gaps elsewhere is no submission, whichever way the gap is spelled."""
    grader = Grader(make_task("rmse", *ANSWERS["rmse"]))
    for gap in ("", "nan", "NaN", "NA", "null", "inf"):
        rows = "".join(f"r{i},{gap}\n" for i in range(1, 5))
        assert grader.grade(hand_in(tmp_path, f"id,target\nr0,1.5\n{rows}")).status is VerdictStatus.INVALID


def test_reasons_do_not_depend_on_the_answers(make_task, tmp_path):
    texts = [text for text in BAD if text] + ["id,target\n" + "".join(f"r{i},zebra\n" for i in range(5))]
    reasons = []
    for answers in (["cat", "dog", "cat", "NA", "dog"], ["NA", "NA", "NA", "NA", "cat"]):
        grader = Grader(make_task("accuracy", answers, ("NA", "cat", "dog")))
        reasons.append([grader.grade(hand_in(tmp_path, text)).reason for text in texts])
    assert reasons[0] == reasons[1] and "NA" not in reasons[0][-1]


def test_tiny_scores_keep_full_precision(make_task, tmp_path):
    lines = Thresholds(1e-6, 2e-6, 3e-6, 4e-6, 1.0)
    grader = Grader(make_task("mae", [0.0, 0.0], thresholds=lines))
    verdict = grader.grade(hand_in(tmp_path, "id,target\nr0,0.0000025\nr1,0.0000025\n"))
    assert verdict.score == pytest.approx(2.5e-6, rel=1e-12) and verdict.medal is Medal.BRONZE


def test_a_sample_that_cannot_be_graded_is_an_error_of_the_task(make_task):
    task = make_task("accuracy", ["cat", "dog"], ("cat", "dog"), fill="bird")
    with pytest.raises(TaskError, match="not valid itself"):
        Grader(task)


# ---------------------------------------------------------------- columns beside the answers, several targets
def test_rows_that_do_not_count_are_checked_like_the_others(make_task, tmp_path):
    """Which rows count is hidden, so a bad prediction is found in any of them; their values do not matter."""
    answers = pd.DataFrame({"id": ["r0", "r1", "r2"], "target": [1.0, 2.0, 9.0], "keep": [1, 1, 0]})
    grader = Grader(make_task("rmsle", [1.0, 2.0, 9.0], answers=answers))
    assert grader.grade(hand_in(tmp_path, "id,target\nr0,1\nr1,2\nr2,77\n")).score == 0.0
    for row in range(3):
        cells = ["-5" if row == at else "1" for at in range(3)]
        verdict = grader.grade(hand_in(tmp_path, "id,target\n" + "".join(f"r{at},{c}\n" for at, c in enumerate(cells))))
        assert verdict.status is VerdictStatus.INVALID and verdict.reason == f"line {row + 2}: -5 is negative"


def test_the_first_bad_row_is_the_files_first_whatever_the_groups_are(make_task, tmp_path):
    answers = pd.DataFrame({"id": ["r0", "r1", "r2", "r3"], "target": 1.0, "group": ["b", "b", "a", "a"]})
    grader = Grader(make_task("rmsle", [1.0] * 4, answers=answers))
    verdict = grader.grade(hand_in(tmp_path, "id,target\nr0,1\nr1,-1\nr2,-1\nr3,1\n"))
    assert verdict.reason == "line 3: -1 is negative"


def test_weights_come_from_the_answers(make_task, tmp_path):
    answers = pd.DataFrame({"id": ["r0", "r1"], "target": [0.0, 0.0], "weight:n": [3.0, 1.0]})
    grader = Grader(make_task("mae", [0.0, 0.0], answers=answers))
    assert grader.grade(hand_in(tmp_path, "id,target\nr1,4\nr0,0\n")).score == 1.0


def test_several_targets_are_matched_by_name(make_task, tmp_path):
    answers = pd.DataFrame({"id": ["r0", "r1"], "a": [0.0, 0.0], "b": [10.0, 10.0]})
    grader = Grader(
        make_task("rmse", [0.0, 0.0], target_columns=("a", "b"), answers=answers, train=answers,
                  sample=answers[["id", "b", "a"]])
    )  # fmt: skip
    assert grader.grade(hand_in(tmp_path, "b,id,a\n10,r0,0\n10,r1,0\n")).score == 0.0
    assert grader.grade(hand_in(tmp_path, "b,id,a\n10,r0,3\n10,r1,3\n")).score == 1.5


def test_two_labels_may_be_predicted_by_a_column_each(make_task, tmp_path):
    sample = pd.DataFrame({"id": ["r0", "r1"], "no": 0.5, "yes": 0.5})
    grader = Grader(make_task("logloss", ["no", "yes"], ("no", "yes"), sample=sample))
    assert grader.grade(hand_in(tmp_path, "id,yes,no\nr0,.25,.75\nr1,.75,.25\n")).score == pytest.approx(-np.log(0.75))
    assert "sum to 1.5" in grader.grade(hand_in(tmp_path, "id,yes,no\nr0,.75,.75\nr1,.75,.25\n")).reason


def test_settings_of_the_metric_are_the_tasks(make_task, tmp_path):
    grader = Grader(make_task("qwk", [0, 1, 4, 4], settings={"low": 0, "high": 4}, fill=1))
    assert grader.grade(hand_in(tmp_path, "id,target\nr0,0\nr1,4\nr2,1\nr3,4\n")).score == pytest.approx(5 / 17)
    assert (
        grader.grade(hand_in(tmp_path, "id,target\nr0,0\nr1,4\nr2,1\nr3,5\n")).reason
        == "line 5: 5 is outside of 0 to 4"
    )


def test_a_score_that_is_no_number_is_invalid_and_never_a_medal(make_task, tmp_path, monkeypatch):
    grader = Grader(make_task("auc", *ANSWERS["auc"]))
    for value in (float("nan"), float("inf")):
        monkeypatch.setattr(grader, "metric", replace(grader.metric, score=lambda *_, value=value, **__: value))
        verdict = grader.grade(hand_in(tmp_path, "id,target\n" + "".join(f"r{at},0.5\n" for at in range(5))))
        assert verdict.status is VerdictStatus.INVALID and verdict.score is None and verdict.medal is Medal.NONE
        assert verdict.reason == "the metric is undefined for these values"
