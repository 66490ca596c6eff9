"""The official client against a local stand-in of Kaggle's API: what comes, what is refused, and what is never told."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
from kaggle_standin import NAME, facts, running, table

from mlexpert.factory import kaggle
from mlexpert.factory.kaggle import Filter
from mlexpert.factory.kaggle_client import KaggleError, connect
from mlexpert.factory.records import Blueprint, Quarantine

KEY = "0123456789abcdef-the-key"


@pytest.fixture
def service(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KAGGLE_API_TOKEN", "KAGGLE_CONFIG_DIR", "XDG_CONFIG_HOME", "VERBOSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAGGLE_USERNAME", "ada")
    monkeypatch.setenv("KAGGLE_KEY", KEY)
    from kagglesdk import kaggle_env

    with running() as served:
        monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, served.address)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client waits between its attempts
        yield served


def plan(raw):
    return Blueprint(raw.id, raw.title, raw.text, "tabular", "houses", "train.csv", ("price",), "rmsle")


def fetched(tmp_path, name=NAME):
    source = kaggle.origin(Filter(competitions=(name,)), plan)
    (lead,) = source.discover()
    raw = source.fetch(lead, tmp_path / "work")
    return raw, source.plan(raw)


def problem(error):
    return error.value.problem, error.value.reason


# ---------------------------------------------------------------- what comes
def test_a_competition_becomes_raw_files_text_and_a_board(service, tmp_path):
    raw, blueprint = fetched(tmp_path)
    assert (raw.folder / "train.csv").read_text() == table()
    assert raw.title == "Toy Houses"
    assert "Some houses." in raw.text and "- cheap" in raw.text and "<" not in raw.text
    assert "Evaluation metric: Root Mean Squared Logarithmic Error" in raw.text
    assert not raw.provenance.redistributable and "CC0" in raw.provenance.licence
    assert raw.provenance.note.endswith("public leaderboard of 2024-05-06, 2 teams, 1 without a score left out")
    board = raw.folder / blueprint.board / "public_leaderboard.csv"
    assert board.read_text() == "rank,score\n1,0.1\n2,0.25\n"
    assert not [path for path in raw.folder.rglob("*") if path.is_file() and "Ada" in path.read_text()]


def test_a_board_of_another_metric_gives_no_thresholds(service, tmp_path):
    service.competitions = [facts(NAME, evaluationMetric="Mean Absolute Error")]
    assert fetched(tmp_path)[1].board == ""
    service.competitions = [facts(NAME, evaluationMetric="Custom Metric")]
    assert fetched(tmp_path / "again")[1].board == ""


def test_the_private_board_is_called_so(service, tmp_path):
    service.board = {f"{NAME}-privateleaderboard.csv": "Rank,Score\n1,0.5\n"}
    raw, blueprint = fetched(tmp_path)
    assert (raw.folder / blueprint.board / "private_leaderboard.csv").is_file()
    assert "private leaderboard of 20" in raw.provenance.note


def test_without_pages_or_leaderboard_the_data_still_come(service, tmp_path):
    service.refuse = {"ListCompetitionPages": (404, "no"), "DownloadLeaderboard": (403, "no board")}
    raw, blueprint = fetched(tmp_path)
    assert blueprint.board == "" and "no leaderboard" in raw.provenance.note and (raw.folder / "train.csv").is_file()


def test_discover_by_filter(service):
    service.competitions = [
        facts("old-houses"), facts("new-houses", deadline="2990-01-01T00:00:00Z"), facts("small-houses", teamCount=3),
        facts("other-cars"), facts("more-houses"),
    ]  # fmt: skip
    api = connect()

    def names(**wanted):
        return [lead.id for lead in kaggle.search(api, Filter(**wanted))]

    assert names() == ["old-houses", "new-houses", "small-houses", "other-cars", "more-houses"]
    assert names(search="houses", deadline="closed", min_teams=10) == ["old-houses", "more-houses"]
    assert names(deadline="open") == ["new-houses"]
    assert names(most=2) == ["old-houses", "new-houses"]
    assert names(max_bytes=10) == [] and len(names(max_bytes=10_000)) == 5
    service.listed = [("images.tar", 100)]
    assert names() == [] and len(names(tables=False)) == 5
    names(category="gettingStarted")
    assert service.calls("ListCompetitions")[-1]["category"] == "HOST_SEGMENT_GETTING_STARTED"


def test_what_a_filter_found_is_remembered(service, tmp_path):
    def leads(**wanted):
        return kaggle.origin(Filter(**wanted), plan, cache=tmp_path / "leads.json").discover()

    first = leads(search="toy")
    calls = len(service.seen)
    assert leads(search="toy") == first and len(service.seen) == calls
    assert [lead.provenance for lead in first] == [lead.provenance for lead in leads(search="toy")]
    leads(search="houses")
    assert len(service.seen) > calls


@pytest.mark.parametrize("wanted", [{"category": "fun"}, {"deadline": "soon"}])
def test_a_filter_that_says_nothing(wanted):
    with pytest.raises(Quarantine, match="is none of"):
        Filter(**wanted)


# ---------------------------------------------------------------- downloads that fail
def test_a_download_that_breaks_off_goes_on_where_it_stopped(service, tmp_path):
    service.files["noise.bin"] = random.Random(0).randbytes(5 << 20)  # the client keeps whole megabytes
    service.break_off = 1
    raw, _ = fetched(tmp_path)
    ranges = [headers.get("Range") for method, path, headers, _ in service.seen if "/storage/DownloadData" in path]
    assert len(ranges) == 2 and ranges[0] is None and ranges[1] != "bytes=0-"
    assert (raw.folder / "noise.bin").read_bytes() == service.files["noise.bin"]


def test_a_second_run_resumes_the_first(service, tmp_path):
    service.files["noise.bin"] = random.Random(0).randbytes(5 << 20)  # the client keeps whole megabytes
    service.break_off = 99
    with pytest.raises(KaggleError) as caught:
        fetched(tmp_path)
    assert problem(caught)[0] in ("network", "half")
    service.break_off, before = 0, len(service.seen)
    fetched(tmp_path)
    assert any(headers.get("Range") for _, _, headers, _ in service.seen[before:])


def test_a_whole_download_is_not_fetched_twice(service, tmp_path):
    fetched(tmp_path)
    kept = (tmp_path / "work" / "download" / f"{NAME}.zip").stat()
    fetched(tmp_path)
    assert (tmp_path / "work" / "download" / f"{NAME}.zip").stat().st_mtime_ns == kept.st_mtime_ns


def test_garbage_is_fetched_once_more(service, tmp_path):
    service.garbage = 1
    assert (fetched(tmp_path)[0].folder / "train.csv").is_file()


def test_what_is_damaged_inside_is_not_kept(service, tmp_path):
    service.flipped = 1
    with pytest.raises(Quarantine, match="damaged"):
        fetched(tmp_path)
    assert (fetched(tmp_path)[0].folder / "train.csv").read_text() == table()


def test_a_leaderboard_that_may_come_later_is_waited_for(service, tmp_path):
    service.refuse = {"DownloadLeaderboard": (503, "")}
    with pytest.raises(KaggleError, match="try again later"):
        fetched(tmp_path)


def test_a_download_without_the_listed_files(service, tmp_path):
    service.listed = [("train.csv", 1), ("data/missing.csv", 1)]
    with pytest.raises(KaggleError) as caught:
        fetched(tmp_path)
    assert problem(caught)[0] == "half" and "such as data/missing.csv" in problem(caught)[1]


# ---------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "call, status, message, kind, told",
    [
        ("DownloadDataFiles", 403, "You must accept this competition's rules", "rules", f"competitions/{NAME}/rules"),
        ("GetCompetition", 401, "Unauthenticated", "credentials", "make a new token"),
        ("GetCompetition", 404, "Not found", "absent", "knows nothing of that name"),
        ("GetCompetition", 429, "Slow down", "busy", "try again later"),
        ("DownloadDataFiles", 503, "", "busy", "HTTP 503"),
        ("GetCompetition", 400, "Strange", "reply", "'Strange'"),
    ],
)
def test_every_refusal_is_explained(service, tmp_path, call, status, message, kind, told):
    service.refuse = {call: (status, message)}
    with pytest.raises(KaggleError) as caught:
        fetched(tmp_path)
    assert problem(caught)[0] == kind and told in problem(caught)[1]
    assert caught.value.stage == "fetch" and caught.value.__cause__ is None


def test_no_network(service, tmp_path, monkeypatch):
    from kagglesdk import kaggle_env

    monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, "http://127.0.0.1:1")
    with pytest.raises(KaggleError) as caught:
        fetched(tmp_path)
    assert problem(caught)[0] == "network" and "is there a way to api.kaggle.com?" in problem(caught)[1]


def test_a_server_that_says_nothing_is_not_waited_for(service, tmp_path, monkeypatch):
    import socket

    from kagglesdk import kaggle_env

    from mlexpert.factory import kaggle_client

    monkeypatch.setattr(kaggle_client, "SECONDS", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setitem(kaggle_env._env_to_endpoint, kaggle_env.KaggleEnv.PROD, address)
        with pytest.raises(KaggleError) as caught:
            fetched(tmp_path)
    assert problem(caught)[0] == "network"


def test_names_that_are_none(service):
    with pytest.raises(Quarantine, match="is no name of a competition"):
        kaggle.origin(Filter(competitions=("../evil",)), plan).discover()


# ---------------------------------------------------------------- credentials
def test_without_credentials_nothing_is_imported_and_it_is_said_what_to_do(service, monkeypatch):
    monkeypatch.delenv("KAGGLE_KEY")
    with pytest.raises(KaggleError) as caught:
        connect()
    assert problem(caught)[0] == "credentials" and "KAGGLE_API_TOKEN" in problem(caught)[1]
    assert service.seen == []


def test_tokens(service, monkeypatch):
    monkeypatch.delenv("KAGGLE_KEY")
    monkeypatch.setenv("KAGGLE_API_TOKEN", service.token)
    assert kaggle.list_files(connect(), NAME)[0][0] == "train.csv"
    assert service.seen[-1][2]["Authorization"] == f"Bearer {service.token}"
    monkeypatch.setenv("KAGGLE_API_TOKEN", "KGAT_expired")
    with pytest.raises(KaggleError) as caught:
        connect()
    assert problem(caught) == ("credentials", "Kaggle's client found no valid credentials; make a new token")


def test_a_file_of_the_client_will_do(service, monkeypatch, tmp_path):
    monkeypatch.delenv("KAGGLE_KEY")
    monkeypatch.delenv("KAGGLE_USERNAME")
    (tmp_path / "home" / ".kaggle").mkdir(parents=True)
    file = tmp_path / "home" / ".kaggle" / "kaggle.json"
    file.write_text(json.dumps({"username": "ada", "key": KEY}))
    file.chmod(0o600)
    from kaggle.api.kaggle_api_extended import KaggleApi

    monkeypatch.setattr(KaggleApi, "config", str(file))  # found when the client is imported, which it is already
    assert kaggle.list_files(connect(), NAME)[0][0] == "train.csv"


def test_credentials_are_sent_to_kaggle_and_told_to_nobody(service, tmp_path, capfd, caplog):
    caplog.set_level("DEBUG")
    service.refuse = {"DownloadLeaderboard": (403, f"the key {KEY} may not")}
    raw, _ = fetched(tmp_path)
    service.refuse = {"GetCompetition": (400, f"bad key {KEY}")}
    with pytest.raises(KaggleError) as caught:
        fetched(tmp_path)
    assert service.seen[0][2]["Authorization"].startswith("Basic ")
    told = "".join(capfd.readouterr()) + caplog.text + str(caught.value) + str(raw)
    told += "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in told and service.seen[0][2]["Authorization"][6:] not in told


@pytest.mark.parametrize("before", ["", "import kaggle"])
def test_a_verbose_client_is_silenced(service, before, tmp_path):
    """In a process of its own: the client decides when it is imported. VERBOSE makes it print its headers."""
    script = (
        f"{before}\nfrom kagglesdk import kaggle_env\n"
        f"kaggle_env._env_to_endpoint[kaggle_env.KaggleEnv.PROD] = {service.address!r}\n"
        "from mlexpert.factory.kaggle_client import connect\n"
        f"print(connect().competition_list_files({NAME!r}).files[0].name)"
    )
    environment = os.environ | {"VERBOSE": "true", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "train.csv\n" and (before or not done.stderr), done.stderr
    assert KEY not in done.stderr and service.seen[-1][2]["Authorization"][6:] not in done.stderr


CLIENTS = {
    "raise SystemExit(1)": "too old",
    "raise ImportError('half installed')": "pip install 'kaggle>=",
    "__version__ = '1.5.16'\nimport sys, types\nsys.modules['kaggle.api'] = types.ModuleType('a')\n"
    "m = sys.modules['kaggle.api.kaggle_api_extended'] = types.ModuleType('b'); m.KaggleApi = object":
        "kaggle 1.5.16 is installed",
}  # fmt: skip


def test_the_client_is_imported_when_it_is_needed_and_one_that_cannot_be_used_is_named(tmp_path):
    """In a process of its own, which has imported no client yet."""
    attempt = "try:\n    connect()\nexcept KaggleError as error:\n    print(error.problem, error.reason)"
    lines = [
        "import sys, mlexpert.factory.kaggle",
        "from mlexpert.factory.kaggle_client import KaggleError, connect",
        "print([name for name in sys.modules if name.startswith('kaggle')])",
    ]
    for at, source in enumerate(CLIENTS):
        (tmp_path / str(at)).mkdir()
        (tmp_path / str(at) / "kaggle.py").write_text(source)
        lines += [f"sys.path.insert(0, {str(tmp_path / str(at))!r})", "sys.modules.pop('kaggle', None)", attempt]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {"KAGGLE_API_TOKEN": "x", "HOME": str(tmp_path), "PYTHONPATH": paths}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    first, *told = done.stdout.splitlines()
    assert first == "[]", done.stderr
    for line, expected in zip(told, CLIENTS.values(), strict=True):
        assert line.startswith("client ") and expected in line
