"""Unpacked competitions are read as a person would: by what their tables have in common, and by their page."""

import csv
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from mlexpert.factory import analyse
from mlexpert.factory.analyse import check, metric, model, prose
from mlexpert.factory.records import Quarantine, Raw
from mlexpert.tasks.task import Provenance

PROVENANCE = Provenance("archive", "", "unknown", False, "test")
N = 120
DRAW = np.random.default_rng(0)
AGES = [str(age) for age in DRAW.integers(1, 90, N)]
SEXES = [str(sex) for sex in DRAW.choice(["male", "female"], N)]
ALIVE = [str(alive) for alive in DRAW.integers(0, 2, N)]
PRICES = [f"{price:.2f}" for price in DRAW.lognormal(5, 1, N)]


@pytest.fixture
def raw(tmp_path):
    """Writes tables (column -> cells) into a folder and returns it with a page."""

    def make(tables, text="", id="demo", files=()):
        for name, table in tables.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(table)
                writer.writerows(zip(*table.values(), strict=True))
        for name in files:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\x89PNG")
        return Raw(id, tmp_path, PROVENANCE, "Demo", text)

    return make


def ids(start, n=N):
    return [str(at) for at in range(start, start + n)]


def titanic(**changes):
    tables = {
        "train.csv": {"PassengerId": ids(1), "Survived": ALIVE, "Age": AGES, "Sex": SEXES},
        "test.csv": {"PassengerId": ids(1000, 60), "Age": AGES[:60], "Sex": SEXES[:60]},
        "gender_submission.csv": {"PassengerId": ids(1000, 60), "Survived": ALIVE[:60]},
    }
    return tables | changes


def test_train_test_and_sample(raw):
    text = "# Titanic\nPassengers of a ship.\n\n## Evaluation\n\nYour score is the accuracy."
    plan = analyse.blueprint(raw(titanic(), text))
    assert (plan.train, plan.id_column, plan.target_columns) == ("train.csv", "PassengerId", ("Survived",))
    assert (plan.metric, plan.labels, plan.recipe) == ("accuracy", ("0", "1"), "stratified")
    assert plan.text == "# Titanic\nPassengers of a ship." and plan.modality == "tabular"


def test_columns_that_only_train_shows_are_hidden(raw):
    """Bike sharing: `casual` and `registered` add up to the target and are not in test."""
    stamps = [f"2011-01-{1 + at // 24:02d} {at % 24:02d}:00:00" for at in range(N)]
    train = {"datetime": stamps, "temp": PRICES, "casual": AGES, "registered": AGES, "count": PRICES}
    test = {"datetime": [stamp.replace("-01-", "-02-") for stamp in stamps], "temp": PRICES}
    sample = {"datetime": test["datetime"], "count": ["0"] * N}
    tables = {"train.csv": train, "test.csv": test, "sampleSubmission.csv": sample}
    text = "Evaluation\n\nScored by the Root Mean Squared Logarithmic Error (RMSLE).\n\nData Fields\n- temp"
    plan = analyse.blueprint(raw(tables, text))
    assert plan.target_columns == ("count",) and plan.hidden == ("casual", "registered")
    assert (plan.metric, plan.recipe, plan.time_column) == ("rmsle", "temporal", "datetime")


def test_groups_that_test_has_none_of(raw):
    train = {"id": ids(0), "patient_id": [f"p{at // 6}" for at in range(N)], "x": PRICES, "y": AGES}
    test = {"id": ids(500), "patient_id": [f"q{at // 6}" for at in range(N)], "x": PRICES}
    plan = analyse.blueprint(raw({"train.csv": train, "test.csv": test}))
    assert (plan.recipe, plan.group_column, plan.target_columns, plan.metric) == (
        "grouped",
        "patient_id",
        ("y",),
        "rmse",
    )


def test_a_sample_with_a_column_per_label(raw):
    species = [str(s) for s in DRAW.choice(["ash", "elm", "oak"], N)]
    train = {"id": ids(0), "species": species, "margin": PRICES}
    test = {"id": ids(500), "margin": PRICES}
    sample = {"id": ids(500), "ash": ["0.3"] * N, "elm": ["0.3"] * N, "oak": ["0.4"] * N}
    plan = analyse.blueprint(raw({"train.csv": train, "test.csv": test, "sample_submission.csv": sample}))
    assert (plan.target_columns, plan.metric, plan.labels) == (("species",), "logloss", ())


def test_several_targets(raw):
    train = {"id": ids(0), "x": AGES, "energy": PRICES, "gap": PRICES[::-1]}
    test = {"id": ids(500), "x": AGES}
    sample = {"id": ids(500), "energy": ["0"] * N, "gap": ["0"] * N}
    text = "Evaluation\nSubmissions are evaluated on the column-wise root mean squared logarithmic error."
    plan = analyse.blueprint(raw({"train.csv": train, "test.csv": test, "sample_submission.csv": sample}, text))
    assert plan.target_columns == ("energy", "gap") and plan.metric == "rmsle"


def test_kappa_gets_its_range_from_the_values(raw):
    grades = [str(grade) for grade in DRAW.integers(0, 5, N)]
    tables = {"train.csv": {"Id": ids(0), "x": AGES, "grade": grades}, "test.csv": {"Id": ids(500), "x": AGES}}
    plan = analyse.blueprint(raw(tables, "Evaluation\nScored by the quadratic weighted kappa."))
    assert (plan.metric, plan.settings) == ("qwk", {"low": 0, "high": 4})


def test_images_named_by_the_id(raw):
    names = [f"img{at:03d}" for at in range(N)]
    tables = {
        "train_labels.csv": {"id": names, "breed": SEXES},
        "sampleSubmission.csv": {"id": ["t1", "t2"], "female": ["0.5"] * 2, "male": ["0.5"] * 2},
    }
    files = [f"train/{name}.png" for name in names] + ["test/t1.png", "test/t2.png"]
    plan = analyse.blueprint(raw(tables, files=files))
    assert (plan.modality, plan.files_column, plan.files_folder) == ("image", "file", "train")
    assert plan.train == "analysed/train.csv" and plan.id_column == "" and plan.target_columns == ("breed",)
    again = analyse.blueprint(raw(tables, files=files))  # the table written the first time is not one of the source's
    assert again == plan


def test_one_table_is_a_data_set(raw):
    plan = analyse.blueprint(raw({"data.csv": {"age": AGES, "sex": SEXES, "target": ALIVE}}))
    assert (plan.train, plan.target_columns, plan.id_column, plan.recipe) == ("data.csv", ("target",), "", "stratified")


def test_labels_of_test_that_the_source_gives(raw):
    solution = {"PassengerId": ids(1000, 60), "Survived": ALIVE[:60]}
    plan = analyse.blueprint(raw(titanic(**{"test_labels.csv": solution})))
    assert (plan.recipe, plan.test, plan.answers) == ("ready", "test.csv", "test_labels.csv")


def test_train_and_test_with_labels(raw):
    tables = {"train.csv": {"age": AGES, "class": ALIVE}, "test.csv": {"age": AGES[:60], "class": ALIVE[:60]}}
    plan = analyse.blueprint(raw(tables))
    assert (plan.recipe, plan.test, plan.answers, plan.target_columns) == ("ready", "test.csv", "", ("class",))


def test_y_beside_x_is_a_coordinate(raw):
    table = {"x": AGES, "y": PRICES, "depth": AGES}
    with pytest.raises(Quarantine, match="nothing says which is the target"):
        analyse.blueprint(raw({"data.csv": table}))
    assert analyse.blueprint(raw({"data.csv": table}, "You must predict the `depth` of each well.")).target_columns == (
        "depth",
    )


def test_a_text_that_names_a_metric_the_target_cannot_have(raw):
    tables = {"train.csv": {"id": ids(0), "x": AGES, "price": PRICES}, "test.csv": {"id": ids(500), "x": AGES}}
    text = "Evaluation\nThe accuracy of your predictions is measured by the mean absolute error."
    assert analyse.blueprint(raw(tables, text)).metric == "mae"


# ---------------------------------------------------------------- what cannot be read
BAD = {
    "no table": ({}, "no CSV table"),
    "no target": ({"data.csv": {"id": ids(0), "age": AGES, "sex": SEXES}}, "nothing says which is the target"),
    "two tables": ({"a.csv": {"x": AGES}, "b.csv": {"y": AGES}}, "several tables could be the training table: "),
    "few rows": ({"data.csv": {"x": AGES[:9], "target": ALIVE[:9]}}, "has 9 rows; a task needs 30"),
    "constant": ({"data.csv": {"x": AGES, "target": ["7"] * N}}, "'target' is the same in every row"),
    "several candidates": (
        {"train.csv": {"id": ids(0), "a": AGES, "b": AGES}, "test.csv": {"id": ids(0)}, "x.csv": {"z": AGES}},
        "a, b: columns that train.csv has and test.csv lacks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_a_person_has_to_name_is_said(raw, name):
    tables, told = BAD[name]
    with pytest.raises(Quarantine) as error:
        analyse.blueprint(raw(tables))
    assert error.value.stage == "plan" and told in error.value.reason


def test_a_broken_table_is_named(raw):
    folder = raw(titanic()).folder
    (folder / "train.csv").write_bytes((folder / "train.csv").read_bytes() + b"1,2\n")
    (folder / "old.csv").write_bytes("a,é\n".encode("latin-1"))
    with pytest.raises(Quarantine, match=r"train\.csv, line 122: 2 fields, the header has 4"):
        analyse.blueprint(Raw("demo", folder, PROVENANCE))


def test_duplicated_ids_are_no_ids(raw):
    tables = {"train.csv": {"id": ["7", *ids(8, N - 1)], "x": AGES, "target": ALIVE}}
    assert analyse.blueprint(raw(tables)).id_column == "id"
    tables["train.csv"]["id"][5] = "7"
    assert analyse.blueprint(raw(tables)).id_column == ""


WRONG = {
    "group_column": (dict(recipe="grouped", group_column="sex"), "'sex' has 2 groups; a split by groups needs 3"),
    "time_column": (dict(recipe="temporal", time_column="sex"), "is no time"),
    "files_column": (dict(files_column="sex"), "120 rows of 'sex' name no file"),
    "id_column": (dict(id_column="sex"), "stands in several rows"),
    "metric": (dict(metric="rmse", target_columns=("sex",)), "rmse"),
    "settings": (dict(metric="qwk"), "qwk needs the setting 'low'"),
    "train": (dict(train="other.csv"), "other.csv"),
    "target_columns": (dict(target_columns=("ghost",)), "has no column 'ghost'"),
}


@pytest.mark.parametrize("field", WRONG)
def test_what_cannot_be_carried_out_is_a_problem_of_its_field(raw, field):
    made = raw({"data.csv": {"age": AGES, "sex": SEXES, "target": ALIVE}})
    plan = analyse.blueprint(made)
    assert check.problems(made, plan) == []
    changes, told = WRONG[field]
    (found,) = check.problems(made, replace(plan, **changes))
    assert found.field == field and told in found.text


# ---------------------------------------------------------------- prose
PAGES = {
    "Your score is the percentage of passengers you correctly predict. This is known as accuracy.": "accuracy",
    "evaluated on Root-Mean-Squared-Error (RMSE) between the logarithm of the predicted and of the true price": "rmsle",
    "The RMSE is used to measure the accuracy": "rmse",
    "submissions are scored on Mean Columnwise Root Mean Squared Error (MCRMSE)": "rmse",
    "area under the ROC curve between the predicted probability and the observed target": "auc",
    "area under the precision-recall curve": "average_precision",
    "the multi-class logarithmic loss": "logloss",
    "the label-weighted label-ranking average precision (lwlrap)": "lwlrap",
    "the Mean F1-Score": "f1",
    "macro F1 score": "macro_f1",
    "Symmetric mean absolute percentage error": "smape",
    "the normalized Gini coefficient": "gini",
    "Spearman's rank correlation": "spearman",
}


@pytest.mark.parametrize("words", PAGES)
def test_metrics_in_the_words_of_pages(words):
    assert (
        metric.named(f"# Game\nThe accuracy of old methods is low.\n\n### Evaluation\n\n{words}.\n")[0].metric
        == PAGES[words]
    )


@pytest.mark.parametrize(
    "words",
    ["Mean Average Precision @ 5 (MAP@5)", "MAP@{K} with \\sum_{k=1}^{min(n,5)} P(k)", "MAP@K: up to five guesses"],
)
def test_the_k_of_map_at_k(words):
    assert metric.named(f"Evaluation\n{words}")[0][:2] == ("map_at_k", {"k": 5})


def test_the_contest_is_left_out_of_the_page():
    contest = "## Timeline\n\nMay 1\n\n## Evaluation\n\nRMSE\n\n"
    text = f"Cars drive.\n\n{contest}## Data\n\n`speed` of a car\n\n## Prizes\n\n5\n"
    assert prose.body(text) == "Cars drive.\n\n## Data\n\n`speed` of a car"


# ---------------------------------------------------------------- a model
@pytest.fixture
def server():
    """An endpoint that gives the listed replies, one a request, and keeps what it was asked."""
    replies, asked = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers.get("Authorization"), body))
            reply = replies.pop(0)
            status, text = (200, {"choices": [{"message": {"content": reply}}]}) if isinstance(reply, str) else reply
            data = json.dumps(text).encode() if not isinstance(text, bytes) else text
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}/v1", replies, asked
    http.shutdown()
    http.server_close()


AMBIGUOUS = {"data.csv": {"id": ids(0), "age": AGES, "sex": SEXES, "alive": ALIVE}}


def read_with(url, raw, said=None):
    told = [] if said is None else said
    endpoint = model.Endpoint(url, "reader", "secret-key")
    return analyse.blueprint(raw, model.analyst(endpoint, told.append))


def test_a_model_names_what_rules_cannot(server, raw):
    url, replies, asked = server
    replies.append('Sure: {"train": "data.csv", "target_columns": ["alive"], "metric": "auc", "id_column": "id"}')
    plan = read_with(url, raw(AMBIGUOUS, "Who lives?"))
    assert (plan.target_columns, plan.metric, plan.title) == (("alive",), "auc", "Demo")
    ((path, key, body),) = asked
    assert path == "/v1/chat/completions" and key == "Bearer secret-key" and body["model"] == "reader"
    assert (
        "data.csv: 120 rows, 4 columns" in body["messages"][1]["content"]
        and "Who lives?" in body["messages"][1]["content"]
    )


def test_answers_are_tried_and_what_fails_is_said_back(server, raw):
    url, replies, asked = server
    replies += [
        '{"train": "data.csv", "target_columns": ["survived"], "metric": "auc"}',
        '{"train": "data.csv", "target_columns": ["sex"], "metric": "rmse"}',
        '{"train": "data.csv", "target_columns": ["sex"], "metric": "accuracy"}',
    ]
    said = []
    assert read_with(url, raw(AMBIGUOUS), said).metric == "accuracy"
    assert "has no column 'survived'; it has id, age, sex, alive" in asked[1][2]["messages"][-1]["content"]
    assert "rmse" in asked[2][2]["messages"][-1]["content"] and len(said) == 1 and "answer 3" in said[0]


def test_of_a_wrong_answer_the_right_fields_are_taken(server, raw):
    url, replies, _ = server
    replies += ['{"metric": "auc", "group_column": "ghost", "recipe": "grouped", "id": "other"}'] * 3
    said = []
    plan = read_with(url, raw(titanic()), said)
    assert (plan.metric, plan.recipe, plan.id) == ("auc", "stratified", "demo")
    assert "taken from them: metric = 'auc'" in said[0]


FAULTS = {
    "an error": ((500, {"error": "down"}), "answers 500"),
    "another form": ((200, {"text": "hello"}), "in another form than chat completions"),
    "no JSON": ((200, b"<html>"), "in another form than chat completions"),
    "a flood": ((200, b"x" * (2**20 + 1)), "longer than 1048576 bytes"),
    "a redirect": ((307, b""), "answers 307"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_without_an_answer_the_rules_stand(server, raw, name):
    url, replies, asked = server
    reply, told = FAULTS[name]
    replies.append(reply)
    said = []
    assert read_with(url, raw(titanic()), said).metric == "accuracy"
    assert told in said[0] and "the rules' reading stands" in said[0] and len(asked) == 1
    assert "secret-key" not in said[0]


def test_nobody_answers(raw):
    said = []
    assert read_with("http://127.0.0.1:9/v1", raw(titanic()), said).metric == "accuracy"
    assert "does not answer (ConnectionError)" in said[0]


def test_no_sense_three_times(server, raw):
    url, replies, asked = server
    replies += ["I cannot.", "[1]", '{"train": 5}']
    with pytest.raises(Quarantine, match="nothing says which is the target"):
        read_with(url, raw(AMBIGUOUS))
    assert len(asked) == 3


def test_the_environment_names_the_endpoint():
    assert model.from_environment({}) is None
    named = {"MLEXPERT_ANALYST_URL": "http://x/v1/", "MLEXPERT_ANALYST_MODEL": "m", "MLEXPERT_ANALYST_KEY": "secret"}
    endpoint = model.from_environment(named)
    assert (endpoint.url, endpoint.model, endpoint.key) == ("http://x/v1", "m", "secret") and "secret" not in repr(
        endpoint
    )
    with pytest.raises(model.EndpointError, match="MLEXPERT_ANALYST_MODEL is not"):
        model.from_environment({"MLEXPERT_ANALYST_URL": "http://x/v1"})
