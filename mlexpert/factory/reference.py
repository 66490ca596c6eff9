"""Runs the reference solutions on a staged task and scores them: in a process of its own, with rows and time bounded.

The process sees what a policy would see, plus the answers for the score. It takes at most MAX_FIT training rows (drawn
by a fixed seed), writes one submission per solution, and its result as JSON; one that takes more processor time than it
may is killed. No time enters a score.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import signal
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from mlexpert.factory import columns, features, seasonal, signals
from mlexpert.factory.beliefs import Goal, predictions
from mlexpert.factory.records import Quarantine
from mlexpert.factory.sample import form_of
from mlexpert.factory.solutions import Problem, names, solve, without_inputs
from mlexpert.factory.targets import Learnt, learn
from mlexpert.tasks.grading import write_submission
from mlexpert.tasks.hidden import hidden_answers
from mlexpert.tasks.intake import Refusal, read_submission
from mlexpert.tasks.metrics import InvalidPrediction, Metric, evaluate
from mlexpert.tasks.tables import TaskError, column, header, read_table
from mlexpert.tasks.task import SAMPLE, Facts, metric_of

MAX_FIT = 10_000  # training rows
MAX_BYTES = 2**28  # of both tables
MAX_TREE_COLUMNS = 200
MEANT_CLASSES = 10  # of one target, whose shares by label are inputs
TOPICS = 50  # columns that trees get of text
SECONDS = 120.0
WAIT = 10  # times as long on the clock
RESOURCES = "resources"  # the kind of a failure that a machine with more of them may not meet
SAMPLE_SCORE = "sample submission"
DIGITS = 9  # of a score: the last bits of a sum differ from machine to machine
SPREAD = frozenset({"pinball", "crps", "laplace"})  # metrics that ask for more than the value


@dataclass(frozen=True)
class Job:
    """What the process is given; all of it can be pickled."""

    facts: Facts
    public: Path
    answers: Path  # as `tasks.hidden` reads them
    out: Path  # <solution>.csv and result.json go there
    time_column: str = ""
    group_column: str = ""
    hidden: tuple[str, ...] = ()


def run(job: Job, seconds: float = SECONDS) -> dict[str, float]:
    """Score by solution, and of the sample submission under SAMPLE_SCORE; `seconds` are of processor time.

    Raises Quarantine("verify", ...) if the process fails or takes too long, or if the sample has no score.
    """
    job.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=work, args=(job, seconds), daemon=True)
    process.start()
    process.join(WAIT * seconds)  # a machine that does many other things is no fault of the task
    if process.is_alive():
        process.kill()
        process.join()
    result = job.out / "result.json"
    if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
        text = f"reference solutions took longer than {seconds:g} s (or were killed); set max_rows, or drop columns"
        raise Quarantine("verify", text, kind=RESOURCES)
    if process.exitcode or not result.exists():
        text = f"the process of the reference solutions ended with code {process.exitcode}; look for lack of memory"
        raise Quarantine("verify", text, kind=RESOURCES)
    found = json.loads(result.read_text(encoding="utf-8"))
    if "error" in found:
        raise Quarantine("verify", found["error"], found["kind"])
    return found["scores"]


def work(job: Job, seconds: float) -> None:
    """What the process does: scores or the reason why there are none."""
    limit = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is bounded on purpose
    try:
        with threadpool_limits(1):
            result: dict[str, Any] = {"scores": scores(job)}
    except (TaskError, signals.UnreadableSignal, ValueError, MemoryError) as error:
        kind = RESOURCES if isinstance(error, MemoryError) else ""
        result = {"error": f"reference solutions: {type(error).__name__}: {error}", "kind": kind}
    (job.out / "result.json").write_text(json.dumps(result), encoding="utf-8")


def scores(job: Job) -> dict[str, float]:
    """Solves, writes and scores, in this process. Predictions that the metric has no value for are left out."""
    facts, metric = job.facts, metric_of(job.facts)
    ids = column(job.public / SAMPLE, facts.id_column)
    answers = hidden_answers(facts, job.answers, ids)
    form = form_of(facts, [name for name in header(job.public / SAMPLE) if name != facts.id_column], ids)
    sample = read_submission(job.public / SAMPLE, form)
    if isinstance(sample, Refusal):
        raise TaskError(f"{SAMPLE} is not valid ({sample.reason}); give one that is, or none, and it is made")
    found = {SAMPLE_SCORE: _rounded(evaluate(metric, answers, sample.values, len(facts.labels)))}
    for name, values in solutions(job, metric, ids).items():
        try:
            score = evaluate(metric, answers, values, len(facts.labels))
        except InvalidPrediction:
            continue
        found[name] = _rounded(score)
        write_submission(job.out / f"{name}.csv", form, facts.labels, values)
    return found


def _rounded(score: float) -> float:
    return float(f"{score:.{DIGITS}g}")


def solutions(job: Job, metric: Metric, ids: Sequence[str]) -> dict[str, Any]:
    """Predictions by solution, in the order of `ids`, as `tasks.intake.Predictions.values` holds them.

    {} for a task whose tables do not describe its test rows one by one, or are too large to read here.
    """
    facts, paths = job.facts, [job.public / name for name in (job.facts.train, job.facts.test) if name]
    if len(paths) < 2 or not facts.columns or sum(path.stat().st_size for path in paths) > MAX_BYTES:
        return {}
    train, test = map(read_table, paths)
    if facts.id_column not in test or sorted(test[facts.id_column]) != sorted(ids):
        return {}
    place = {id: row for row, id in enumerate(test[facts.id_column])}
    test = test.iloc[[place[id] for id in ids]].reset_index(drop=True)
    learnt = learn(metric, [train[name].tolist() for name in facts.target_columns], facts.labels)
    if learnt.goal is Goal.SHAPES:
        return {}
    spare = [*facts.target_columns, facts.id_column, *job.hidden]
    fit_N, ask_K = _rows(len(train), spread=facts.metric in SPREAD)
    inputs = train.drop(columns=spare, errors="ignore")
    asked = pd.concat([inputs.iloc[ask_K], test[[name for name in test if name in inputs]]], ignore_index=True)
    problem = _problem(job, inputs.iloc[fit_N].reset_index(drop=True), asked, learnt, fit_N)
    truth_KxT = learnt.back(learnt.values[ask_K]) if learnt.goal is Goal.NUMBERS else np.empty((0, 0))
    beliefs: dict[str, np.ndarray] = {}
    found = {}
    for name in names(problem):
        beliefs[name] = solve(name, problem, beliefs)
        belief = learnt.back(beliefs[name])
        residuals = truth_KxT - belief[: len(ask_K)] if learnt.goal is Goal.NUMBERS else truth_KxT
        found[name] = predictions(metric, belief[len(ask_K) :], learnt.names, residuals)
    if job.time_column in inputs and learnt.goal is Goal.NUMBERS and facts.metric not in SPREAD:
        found |= _forecasts(job, metric, train, test, learnt)
    return found


def _rows(n: int, spread: bool) -> tuple[np.ndarray, np.ndarray]:
    """Training rows to fit to, and to predict so that residuals are honest (where they are asked for)."""
    order_N = np.random.default_rng([n, 3]).permutation(n)[:MAX_FIT]
    kept = len(order_N) - (len(order_N) // 5 if spread else 0)
    return np.sort(order_N[:kept]), np.sort(order_N[kept:])


# ---------------------------------------------------------------- inputs
def _problem(job: Job, fit: pd.DataFrame, asked: pd.DataFrame, learnt: Learnt, fit_N: np.ndarray) -> Problem:
    kinds, answers = job.facts.columns, learnt.values[fit_N]
    blind = without_inputs(learnt._replace(values=answers), len(job.facts.labels), len(asked))
    words = features.words(fit, asked, kinds) if "text" in kinds.values() else blind.words
    if learnt.goal is Goal.TEXTS:
        return blind._replace(words=words)
    more = [*_means(fit, asked, kinds, learnt, answers), *_files(job, fit, asked)]
    topics = _topics(words)
    strength_N = answers[:, 0].astype(np.float64)
    columns_of_trees = features.varied(_joined([features.coded(fit, asked, kinds), *more]))
    trees = features.strongest(columns_of_trees, strength_N, MAX_TREE_COLUMNS)
    dense = _joined([features.linear(fit, asked, kinds), *map(features.scaled, more)])
    linear = [sparse.hstack([part, text]).tocsr() for part, text in zip(dense, words, strict=True)] if topics else dense
    return blind._replace(trees=_joined([trees, *topics]), linear=tuple(linear), words=words)


def _joined(pairs: Sequence[features.Pair]) -> features.Pair:
    return features.Pair(np.hstack([pair[0] for pair in pairs]), np.hstack([pair[1] for pair in pairs]))


def _means(
    fit: pd.DataFrame, asked: pd.DataFrame, kinds: Mapping[str, str], learnt: Learnt, answers: np.ndarray
) -> list[features.Pair]:
    """Mean outcomes by the labels of columns that have many."""
    if learnt.goal is Goal.SETS:
        return []
    if learnt.goal is Goal.CLASSES:
        answers = (answers[:, :1] == np.unique(answers[:, 0])[:MEANT_CLASSES]).astype(np.float64)
    labels = [name for name in asked if kinds.get(name) == "label"]
    wide = [name for name in labels if len(set(fit[name])) > features.MAX_INDICATORS]
    return [features.target_means(fit[name].tolist(), asked[name].tolist(), answers) for name in wide]


def _files(job: Job, fit: pd.DataFrame, asked: pd.DataFrame) -> list[features.Pair]:
    """What is in the files that a column names, if they are pictures, sounds or arrays."""
    found = []
    for name in (name for name in asked if job.facts.columns.get(name) == "file"):
        paths = [[job.public / cell for cell in table[name]] for table in (fit, asked)]
        if {path.suffix.lower() for each in paths for path in each} <= signals.SUFFIXES:
            found.append(features.Pair(*map(signals.signals, paths)))
    return found


def _topics(words: tuple[sparse.csr_matrix, sparse.csr_matrix]) -> list[features.Pair]:
    n_rows, n_words = words[0].get_shape()
    width = min(TOPICS, n_words - 1, n_rows - 1)
    if width < 2:
        return []
    reduced = TruncatedSVD(width, random_state=0).fit(words[0])
    return [features.Pair(reduced.transform(words[0]), reduced.transform(words[1]))]


def _forecasts(job: Job, metric: Metric, train: pd.DataFrame, test: pd.DataFrame, learnt: Learnt) -> dict[str, Any]:
    """Seasonal forecasts of every target."""
    raw_NxT = learnt.back(learnt.values)
    times = columns.times_of(*(table[job.time_column].tolist() for table in (train, test)))
    groups = [table[job.group_column].tolist() if job.group_column else [""] * len(table) for table in (train, test)]
    known, asked = zip(groups, times, strict=True)
    by_target = [seasonal.forecasts((*known, raw_N), asked) for raw_N in raw_NxT.T]
    return {
        name: predictions(metric, np.stack([each[name] for each in by_target], axis=1), (), np.empty((0, 0)))
        for name in by_target[0]
    }
