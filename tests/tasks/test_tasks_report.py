"""Reports in MLE-bench's schema: complete, exact both ways, strict JSON; aggregates that can be recomputed by hand."""

import json
import math
from dataclasses import replace

import pytest
from metric_cases import EACH
from task_cases import case_of

from mlexpert.tasks.grading import Grader
from mlexpert.tasks.metrics import perfect
from mlexpert.tasks.precision import standard_error
from mlexpert.tasks.report import aggregate, from_json, report, to_json

MLE_BENCH = {
    "competition_id", "score", "gold_threshold", "silver_threshold", "bronze_threshold", "median_threshold",
    "any_medal", "gold_medal", "silver_medal", "bronze_medal", "above_median", "submission_exists",
    "valid_submission", "is_lower_better", "created_at", "submission_path",
}  # fmt: skip
TOTALS = {
    "total_runs", "total_runs_with_submissions", "total_valid_submissions", "total_medals", "total_gold_medals",
    "total_silver_medals", "total_bronze_medals", "total_above_median", "competition_reports",
}  # fmt: skip
BOARDS = {"public": [0.2, 0.05, math.nan], "private": [0.1, 0.3, 0.2, 0.2]}


@pytest.fixture
def graded(make_task, tmp_path):
    """graded(text or None, **changes): the report of a submission to a task with boards."""

    def make(text, task=None, **told):
        task = task or make_task("mae", [1.0, 2.0], boards=BOARDS)
        path = tmp_path / "s.csv"
        if text is not None:
            path.write_text(text)
        assessed = Grader(task).assess(path if text is not None else None)
        return report(task, assessed.verdict, assessed.refusal, path=str(path), **told)

    return make


def test_a_graded_submission(graded):
    one = graded("id,target\nr0,1.15\nr1,2.15\n", standard_error=0.01, run="3")
    assert one.score == pytest.approx(0.15) and one.silver_medal and one.any_medal
    assert not one.gold_medal and not one.bronze_medal and one.above_median and one.valid_submission
    assert one.next_medal == "gold" and one.next_distance == pytest.approx(0.05)
    assert one.ties == {"gold": 1, "silver": 2, "bronze": 1}
    assert one.places == {"public": [2, 2], "private": [2, 4]} and one.human_rank == (1 / 2 + 3 / 4) / 2
    assert (one.status, one.reason, one.standard_error, one.run) == ("graded", "", 0.01, "3")


def test_an_invalid_and_an_absent_submission(graded):
    bad = graded("id,target\nr0,1\nr1,nan\n")
    assert bad.score is None and bad.submission_exists and not bad.valid_submission and not bad.any_medal
    assert (bad.status, bad.reason_code, bad.reason_line, bad.reason_count) == ("invalid", "not_finite", 3, 1)
    assert (bad.reason_column, bad.human_rank, bad.places) == ("target", 0.0, {})
    none = graded(None)
    assert not none.submission_exists and (none.status, none.reason_code) == ("absent", "")


@pytest.mark.parametrize("text", ["id,target\nr0,1.15\nr1,2.15\n", "id,target\nr0,1\nr1,nan\n", None])
def test_a_report_is_strict_json_and_comes_back_equal(graded, text):
    one = graded(text, standard_error=0.1 + 0.2)
    line = json.dumps(to_json(one), allow_nan=False)
    assert from_json(json.loads(line)) == one
    assert json.loads(line).keys() >= MLE_BENCH


def test_a_report_that_mle_bench_wrote_is_read(graded):
    one = graded("id,target\nr0,1\nr1,2\n")
    theirs = {name: value for name, value in to_json(one).items() if name in MLE_BENCH} | {"unknown": 1}
    read = from_json(theirs)
    assert {name: getattr(read, name) for name in MLE_BENCH} == {name: getattr(one, name) for name in MLE_BENCH}
    with pytest.raises(ValueError, match="competition_id"):
        from_json({"score": 1.0})


def test_a_task_without_boards_has_no_places(graded, make_task):
    one = graded("id,target\nr0,1\nr1,2\n", make_task("mae", [1.0, 2.0]))
    assert one.places == {} and one.ties == {} and one.human_rank is None


def test_totals_and_rates_over_runs_by_hand(graded):
    gold = replace(graded("id,target\nr0,1\nr1,2\n"), competition_id="a", run="1")
    bad = replace(graded("nonsense"), competition_id="b", run="1")
    silver = replace(graded("id,target\nr0,1.15\nr1,2.15\n"), competition_id="a", run="2")
    whole = aggregate([gold, bad, silver], ["a", "b", "c"])
    assert whole.keys() >= TOTALS and json.dumps(whole, allow_nan=False)
    totals = [whole[name] for name in ("total_runs", "total_valid_submissions", "total_medals", "total_gold_medals")]
    assert totals == [3, 2, 2, 1] and whole["total_silver_medals"] == 1 and whole["total_above_median"] == 2
    # Two runs of three tasks, one medal each; what is missing counts as a failure and is named.
    rate = whole["any_medal_percentage"]
    assert rate["runs"] == {"1": 1, "2": 1} and rate["mean"] == pytest.approx(100 / 3) and rate["sem"] == 0.0
    assert whole["padded"] == [["1", "c"], ["2", "b"], ["2", "c"]]
    assert whole["gold_medal_percentage"]["mean"] == pytest.approx((100 / 3 + 0) / 2)
    assert whole["gold_medal_percentage"]["sem"] == pytest.approx(100 / 6)
    assert [from_json(each) for each in whole["competition_reports"]] == [gold, bad, silver]


def test_an_aggregate_never_mixes_up_runs(graded):
    one = replace(graded("id,target\nr0,1\nr1,2\n"), competition_id="a")
    with pytest.raises(ValueError, match="two reports of one task in one run"):
        aggregate([one, one], ["a"])
    with pytest.raises(ValueError, match="not one of the 1 tasks"):
        aggregate([one], ["b"])
    assert aggregate([], ["a"])["any_medal_percentage"]["mean"] is None


# ---------------------------------------------------------------- how far a score may be chance
def test_the_standard_error_of_a_mean_is_the_one_of_the_textbook(make_task, tmp_path):
    rows = 400
    grader = Grader(make_task("mae", [0.0] * rows))
    path = tmp_path / "s.csv"
    path.write_text("id,target\n" + "".join(f"r{at},{at % 7}\n" for at in range(rows)))
    values = grader.assess(path).predictions.values
    expected = values.std(ddof=1) / math.sqrt(rows)
    assert standard_error(grader.metric, grader.answers, values, ()) == pytest.approx(expected, rel=0.4)
    assert standard_error(grader.metric, grader.answers, values, (), seed=1) == pytest.approx(expected, rel=0.4)


def test_the_standard_error_of_what_has_none(make_task):
    grader = Grader(make_task("mae", [0.0]))
    assert standard_error(grader.metric, grader.answers, grader.form.sample, ()) is None
    rare = Grader(make_task("macro_f1", ["a"] * 30 + ["b"], ("a", "b")))  # a third of the draws lack the "b"
    most = Grader(make_task("macro_f1", ["a"] * 30 + ["b"] + ["c"], ("a", "b", "c")))  # most lack "b" or "c"
    assert standard_error(rare.metric, rare.answers, rare.form.sample, ("a", "b")) is not None
    assert standard_error(most.metric, most.answers, most.form.sample, ("a", "b", "c")) is None


@pytest.mark.parametrize(("name", "variant"), EACH)
def test_every_metric_has_a_standard_error_or_says_that_it_has_none(name, variant):
    case = case_of(name, variant)
    error = standard_error(case.metric, case.answers, case.predictions, case.labels)
    assert error is None or (math.isfinite(error) and error >= 0.0)
    best = perfect(case.metric, case.answers, len(case.labels))
    flawless = standard_error(case.metric, case.answers, best, case.labels)
    if case.metric.chosen.get("empty") != "zero" and name not in ("log_mae", "laplace"):
        assert flawless is None or flawless < 1e-9
