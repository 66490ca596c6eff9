"""MLE-Dojo folders: the metric is read out of metric.py as data, boards lie beside the answers, doubts are refused."""

import json
import textwrap

import pandas as pd
import pytest

from mlexpert.factory import mledojo
from mlexpert.factory.metric_names import metric_named
from mlexpert.factory.mledojo_metric import read_metric
from mlexpert.factory.records import Quarantine
from mlexpert.tasks.grading import Grader
from mlexpert.tasks.seal import seal
from mlexpert.tasks.tables import read_table
from mlexpert.tasks.task import Facts, Split, Thresholds

NAME = "toy-sales"
IDS = [f"i{at}" for at in range(4)]
SAMPLE = pd.DataFrame({"id": IDS, "sales": 0})
TRUTH = pd.DataFrame({"id": IDS, "sales": [1.5, 2.0, 3.0, 0.0]})


RMSLE = "using Root Mean Squared Logarithmic Error (RMSLE)."
BODY = "return error(y_true[self.value], y_pred[self.value])"


def source(words=RMSLE, value="sales", higher=False, body=BODY, imports=""):
    """A metric.py in the manner of MLE-Dojo's, by default one whose lower values are better."""
    taken = f"from sklearn.metrics import {imports}\n" if imports else ""
    note = f'    """Metric class of a competition {words}"""\n' if words else ""
    return (
        f"import numpy as np\n{taken}\nclass ToyMetrics(CompetitionMetrics):\n{note}"
        f"    def __init__(self, value: str = {value!r}, higher_is_better: bool = {higher}):\n        pass\n\n"
        f"    def evaluate(self, y_true, y_pred):\n{textwrap.indent(body, ' ' * 8)}\n"
    )


def prepare(folder, name=NAME, answers=TRUTH, sample=SAMPLE, metric=None, boards=True):
    public, private = (folder / name / "data" / part for part in ("public", "private"))
    public.mkdir(parents=True)
    private.mkdir()
    (public / "description.txt").write_text("Predict the sales.")
    sample.to_csv(public / "sample_submission.csv", index=False)
    answers.to_csv(private / "test_answer.csv", index=False)
    if boards:
        (private / "private_leaderboard.csv").write_text("rank,score\n1,0.1\n2,0.2\n3,nan\n")
        (private / "public_leaderboard.csv").write_text("rank,score\n1,0.15\n")
    home = folder / "checkout" / "mledojo" / "competitions" / name / "utils"
    home.mkdir(parents=True)
    (home / "metric.py").write_text(metric if metric is not None else source())
    return folder / name / "data"


def fetched(folder, name=NAME, metrics=None):
    made = mledojo.origin(folder, folder / "checkout", metrics, [name])
    (lead,) = made.discover()
    raw = made.fetch(lead, folder / "work" / name)
    return raw, made.plan(raw)


def grader(raw, plan, folder):
    facts = Facts(
        id=plan.id, modality=plan.modality, domain=plan.domain, metric=plan.metric, settings=plan.settings,
        id_column=plan.id_column, target_columns=plan.target_columns, labels=plan.labels, provenance=raw.provenance,
        split=Split("ready", 0, 0.0), thresholds_from="nothing", train=plan.train, test=plan.test,
    )  # fmt: skip
    answers = read_table(raw.folder / plan.answers)
    task = seal(folder, facts, Thresholds(0, 0, 0, 0, 0), public=raw.folder / plan.public_folder, answers=answers)
    return Grader(task)


def refused(folder, **changes):
    with pytest.raises(Quarantine) as caught:
        fetched(folder, **changes)
    return caught.value.reason


# ---------------------------------------------------------------- tasks
def test_a_folder_becomes_a_task(tmp_path):
    prepare(tmp_path)
    raw, plan = fetched(tmp_path)
    assert (plan.metric, plan.id_column, plan.target_columns) == ("rmsle", "id", ("sales",))
    assert raw.text == "Predict the sales." and (raw.folder / "public" / "description.md").read_text() == raw.text
    path = tmp_path / "s.csv"
    TRUTH.iloc[::-1].to_csv(path, index=False)
    assert grader(raw, plan, tmp_path / "set").grade(path).score == 0.0
    assert raw.provenance.note.endswith("public leaderboard of 1 teams, private leaderboard of 2 teams")
    assert (raw.folder / plan.board / "private_leaderboard.csv").read_text() == "rank,score\n1,0.1\n2,0.2\n"


def test_labels_columns_per_label_and_ratings(tmp_path):
    names = ["EAP", "HPL", "MWS"]
    sample = pd.DataFrame({"id": IDS, **dict.fromkeys(names, 1 / 3)})
    truth = pd.DataFrame({"id": IDS, "EAP": [1, 0, 0, 0], "HPL": [0, 1, 0, 1], "MWS": [0, 0, 1, 0]})
    prepare(tmp_path, answers=truth, sample=sample, metric=source("using multi-class log loss.", "author"))
    raw, plan = fetched(tmp_path)
    assert (plan.target_columns, plan.labels) == (("label",), tuple(names))
    path = tmp_path / "s.csv"
    truth.to_csv(path, index=False)
    assert grader(raw, plan, tmp_path / "set").grade(path).score == pytest.approx(0.0, abs=1e-12)
    prepare(
        tmp_path,
        "grades",
        TRUTH.assign(sales=[1, 3, 2, 5]),
        metric=source("using quadratic weighted kappa", higher=True),
    )
    assert fetched(tmp_path, "grades")[1].settings == {"low": 1, "high": 5, "outside": "clip"}
    truth = TRUTH.assign(sales=["b", "a", "c", "a"])
    prepare(tmp_path, "words", truth, SAMPLE.assign(sales="a"), source("using accuracy", higher=True))
    assert fetched(tmp_path, "words")[1].labels == ("a", "b", "c")


def test_a_competition_of_mle_bench_has_its_metric(tmp_path):
    name = "ventilator-pressure-prediction"
    answers = pd.DataFrame({"id": IDS, "pressure": [1.0, 2.0, 3.0, 4.0], "u_out": [0, 0, 1, 0]})
    prepare(tmp_path, name, answers, answers[["id", "pressure"]], metric="nothing that is read")
    raw, plan = fetched(tmp_path, name)
    assert plan.metric == "mae" and "MLE-bench's map" in raw.provenance.note
    assert read_table(raw.folder / plan.answers)["keep"].tolist() == list("1101")
    prepare(tmp_path / "other", name, answers[["id", "pressure"]], answers[["id", "pressure"]],
            metric=source("using mean absolute error", "pressure"))  # fmt: skip
    assert "metric from metric.py" in fetched(tmp_path / "other", name)[0].provenance.note


def test_several_targets(tmp_path):
    """`value` counts only where `evaluate` looks at it; a root of all columns together is another number."""
    sample, truth = SAMPLE.assign(more=0), TRUTH.assign(more=[1, 2, 3, 4])
    prepare(tmp_path, "one", truth, sample)
    assert fetched(tmp_path, "one")[1].target_columns == ("sales",)
    prepare(tmp_path, "all", truth, sample, source("using mean column-wise RMSLE", body="return error(y_true, y_pred)"))
    assert fetched(tmp_path, "all")[1].target_columns == ("sales", "more")
    prepare(tmp_path, NAME, truth, sample, source(body="return error(y_true, y_pred)"))
    assert "leaves open whether rmsle is of each of the 2 target columns" in refused(tmp_path)


def test_a_map_of_the_users_comes_first(tmp_path):
    prepare(tmp_path, metric=source("Some words", "sales"))
    assert "leaves the metric open" in refused(tmp_path)
    chosen = tmp_path / "map.json"
    chosen.write_text(json.dumps({NAME: {"metric": "mae"}}))
    raw, plan = fetched(tmp_path, metrics=chosen)
    assert plan.metric == "mae" and "metric from the map" in raw.provenance.note
    before = mledojo.origin(tmp_path, metrics=chosen).version
    chosen.write_text(json.dumps({NAME: {"metric": "rmse"}}))
    assert mledojo.origin(tmp_path, metrics=chosen).version != before
    for wrong in ("[]", "{", json.dumps({NAME: {"metric": "best"}}), json.dumps({NAME: {"metric": "mae", "k": 1}})):
        chosen.write_text(wrong)
        assert "is no map of metrics" in refused(tmp_path, metrics=chosen)


def test_what_is_missing_is_named(tmp_path):
    data = prepare(tmp_path, metric=source())
    for path, told in (("private/test_answer.csv", "there is no private/test_answer.csv"),
                       ("public/sample_submission.csv", "there is no public/sample_submission.csv"),
                       ("public/description.txt", "has no description.txt")):  # fmt: skip
        content = (data / path).read_bytes()
        (data / path).unlink()
        assert told in refused(tmp_path)
        (data / path).write_bytes(content)
    TRUTH.rename(columns={"sales": "other"}).to_csv(data / "private" / "test_answer.csv", index=False)
    assert "test_answer.csv has no column 'sales'" in refused(tmp_path)
    (tmp_path / "checkout" / "mledojo" / "competitions" / NAME / "utils" / "metric.py").unlink()
    assert "is not known: name a checkout" in refused(tmp_path)


# ---------------------------------------------------------------- metric.py
@pytest.mark.parametrize(
    "text, metric",
    [
        (source(), "rmsle"),
        (source("using ROC AUC.", higher=True, imports="roc_auc_score", body="return roc_auc_score(a, b)"), "auc"),
        (source("", higher=True, imports="f1_score as f", body="return f(a, average='macro')"), "macro_f1"),
        (source("", body="# Calculate RMSE\nreturn np.sqrt(np.mean(a))"), "rmse"),
        (source("", imports="mean_squared_error", body="return np.sqrt(mean_squared_error(a, b))"), "rmse"),
        (source("", imports="mean_squared_error", body="return mean_squared_error(a, b)"), "mse"),
        (source("", imports="cohen_kappa_score", higher=True,
                body="return cohen_kappa_score(a, b, weights='quadratic')"), "qwk"),
        (source("using MAP@5.", higher=True), "map_at_k"),
    ],
)  # fmt: skip
def test_metrics_that_are_said(text, metric):
    assert read_metric(text).metric == metric


@pytest.mark.parametrize(
    "text, told",
    [
        (source("using RMSLE.", higher=True), "it says higher is better, rmsle is the other way round"),
        (source("using a weighted AUC.", higher=True), "neither its words nor its calls"),
        (source("of our own.", higher=True, imports="roc_auc_score", body="return 2 * roc_auc_score(a, b)"),
         "its words name no metric"),
        (source("using MAE.", imports="log_loss", body="return log_loss(a, b)"), "calls what computes logloss"),
        (source("", imports="log_loss, r2_score", body="return log_loss(a, b) + r2_score(a, b)"),
         "it calls what computes logloss, r2"),
        (source("using micro-averaged F1 score.", higher=True), "also said of sets and spans"),
        ("class A:\n    pass\n", "it has 0 classes with a method `evaluate`"),
        ("def broken(:\n", "it is not Python"),
        ("(" * 9999, "it is not Python"),
    ],
)  # fmt: skip
def test_metrics_that_stay_open(text, told):
    with pytest.raises(Quarantine) as caught:
        read_metric(text)
    assert told in caught.value.reason and "name it in the map of metrics" in caught.value.reason


def test_metric_py_is_not_run(tmp_path):
    trap = f"open({str(tmp_path / 'trap')!r}, 'w')\n" + source(body=f"open({str(tmp_path / 'trap')!r}, 'w')")
    prepare(tmp_path, metric=trap)
    fetched(tmp_path)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "text, metric",
    [
        ("Root Mean Squared Logarithmic Error", "rmsle"), ("RMSE", "rmse"), ("Categorization Accuracy", "accuracy"),
        ("QuadraticWeightedKappa", "qwk"), ("F-Score (Macro)", "macro_f1"), ("R^2 score", "r2"), ("R² score", "r2"),
        ("Area Under Receiver Operating Characteristic Curve", "auc"), ("MAP@3", "map_at_k"),
        ("Mean Columnwise Spearman's r (rank correlation coefficient)", "spearman"), ("Multiclass Loss", "logloss"),
        ("Custom Metric", None), ("MAP@{K}", None), ("F-Score Beta (Micro)", None), ("MASpearmanR", None),
        ("Weighted Mean Absolute Error", None), ("Mean Squared Log Error", None), ("RMSE and MAE", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_metrics(text, metric):
    named = metric_named(text)
    assert (named and named[0]) == metric
