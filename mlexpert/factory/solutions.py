"""Reference solutions of differing strength: what an honest stranger gets from the training rows in seconds.

    constant       the shares of the classes, the mean (the median for absolute errors), the most frequent text
    linear         ridge, or logistic regression, on indicators and words
    bayes          naive Bayes on words                    shallow tree   a tree of depth 3
    neighbours     the 20 nearest rows                     forest         100 randomised trees
    few trees      15 rounds of boosting                   boosted        up to 150 rounds
    blend          mean of linear, forest and boosted      nearest        the answer of the most similar text

Deterministic in the seeds below; work is bounded by rows, columns and rounds, never by the clock, so that the same data
give the same scores on a slow machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from mlexpert.factory.beliefs import Goal
from mlexpert.factory.targets import Learnt

BOOSTED_TREES = 900  # in all rounds and outputs together
ROUNDS = 150
NEIGHBOURS = 20


class Problem(NamedTuple):
    """Inputs of N training and of Q rows to predict, and what was answered in training."""

    trees: tuple[np.ndarray, np.ndarray]  # NxF and QxF, NaN for gaps
    linear: tuple[Any, Any]  # NxG and QxG, dense or sparse, no gaps
    words: tuple[sparse.csr_matrix, sparse.csr_matrix]  # NxW and QxW; W is 0 without text
    goal: Goal
    answers: np.ndarray  # classes: codes NxT; sets: 0 and 1 NxL; numbers: NxT; texts: N objects
    n_classes: int = 0
    absolute: bool = False  # numbers: the metric counts absolute errors

    @property
    def rows(self) -> int:
        return self.trees[1].shape[0]

    @property
    def n_words(self) -> int:
        return self.words[0].get_shape()[1]


def without_inputs(learnt: Learnt, n_classes: int, rows: int) -> Problem:
    """The problem of somebody who sees only the answers of the training rows."""
    dense = np.empty((len(learnt.values), 0)), np.empty((rows, 0))
    words = sparse.csr_matrix(dense[0].shape), sparse.csr_matrix(dense[1].shape)
    return Problem(dense, dense, words, learnt.goal, learnt.values, n_classes, learnt.absolute)


def names(problem: Problem) -> list[str]:
    """The solutions that apply, weakest first as a rule; "blend" needs those before it."""
    if problem.goal is Goal.TEXTS:
        return ["constant", *(["nearest"] if problem.n_words else [])]
    if problem.goal is Goal.SHAPES:
        return []
    bayes = problem.goal is not Goal.NUMBERS and problem.n_words
    trees = ["shallow tree", "neighbours", "few trees", "forest", "boosted"] if problem.trees[0].shape[1] else []
    linear = ["linear"] if problem.linear[0].shape[1] else []
    return ["constant", *(["bayes"] if bayes else []), *linear, *trees, *(["blend"] if trees and linear else [])]


def solve(name: str, problem: Problem, earlier: dict[str, np.ndarray]) -> np.ndarray:
    """The belief (see `beliefs`) of solution `name` about the rows to predict; `earlier` holds those made before."""
    if problem.goal is Goal.TEXTS:
        return _text(name, problem)
    if name == "constant":
        return _constant(problem)
    if name == "blend":
        return np.mean([earlier[part] for part in ("linear", "forest", "boosted")], axis=0)
    x_NxF, z_QxF = {"bayes": problem.words, "linear": problem.linear, "neighbours": problem.linear}.get(
        name, problem.trees
    )
    outputs = problem.answers.T
    if problem.goal is Goal.NUMBERS:
        fit = _REGRESSORS[name]
        return np.stack([fit(problem).fit(x_NxF, y_N).predict(z_QxF) for y_N in outputs], axis=1)
    n_classes = problem.n_classes if problem.goal is Goal.CLASSES else 2
    shares = [_shares(_CLASSIFIERS[name](problem), x_NxF, y_N, z_QxF, n_classes) for y_N in outputs]
    return (
        np.stack(shares, axis=1) if problem.goal is Goal.CLASSES else np.stack([each[:, 1] for each in shares], axis=1)
    )


# ---------------------------------------------------------------- without a model
def _constant(problem: Problem) -> np.ndarray:
    answers = problem.answers
    if problem.goal is Goal.CLASSES:
        one = np.stack([np.bincount(y_N, minlength=problem.n_classes) / len(y_N) for y_N in answers.T])
    else:
        one = np.median(answers, axis=0) if problem.absolute else answers.mean(axis=0)
    return np.broadcast_to(one, (problem.rows, *one.shape)).copy()


def _text(name: str, problem: Problem) -> np.ndarray:
    if name == "constant":
        texts, counts = np.unique(problem.answers.astype(str), return_counts=True)
        return np.full(problem.rows, str(texts[counts.argmax()]), dtype=object)
    x_NxW, z_QxW = problem.words
    nearest_Q = [int(np.argmax((x_NxW @ z_QxW[row].T).toarray()[:, 0])) for row in range(problem.rows)]
    return problem.answers[nearest_Q]


# ---------------------------------------------------------------- models
def _shares(model: Any, x_NxF: Any, y_N: np.ndarray, z_QxF: Any, n_classes: int) -> np.ndarray:
    """QxC: classes that the training rows do not show get share 0."""
    seen = np.unique(y_N)
    shares_QxC = np.zeros((z_QxF.shape[0], n_classes))
    if len(seen) == 1:
        shares_QxC[:, seen[0]] = 1.0
    else:
        shares_QxC[:, seen] = model.fit(x_NxF, y_N).predict_proba(z_QxF)
    return shares_QxC


def _rounds(problem: Problem) -> int:
    per_round = problem.answers.shape[1] * (problem.n_classes if problem.n_classes > 2 else 1)
    return int(np.clip(BOOSTED_TREES // max(1, per_round), 8, ROUNDS))


def _boosting(rounds: Callable[[Problem], int]) -> tuple[Callable[[Problem], Any], Callable[[Problem], Any]]:
    shared: dict[str, Any] = dict(learning_rate=0.1, max_leaf_nodes=15, early_stopping=False, random_state=0)
    return (
        lambda problem: HistGradientBoostingClassifier(max_iter=rounds(problem), **shared),
        lambda problem: HistGradientBoostingRegressor(
            max_iter=rounds(problem), loss="absolute_error" if problem.absolute else "squared_error", **shared
        ),
    )


def _neighbours(problem: Problem) -> int:
    return min(NEIGHBOURS, len(problem.answers))


_BOOSTED, _FEW = _boosting(_rounds), _boosting(lambda problem: min(15, _rounds(problem)))
_CLASSIFIERS: dict[str, Callable[[Problem], Any]] = {
    "bayes": lambda problem: MultinomialNB(alpha=0.1),
    "shallow tree": lambda problem: DecisionTreeClassifier(max_depth=3, random_state=0),
    "linear": lambda problem: LogisticRegression(C=1.0, max_iter=100, tol=1e-3),
    "neighbours": lambda problem: KNeighborsClassifier(_neighbours(problem)),
    "forest": lambda problem: ExtraTreesClassifier(100, min_samples_leaf=2, random_state=0),
    "few trees": _FEW[0],
    "boosted": _BOOSTED[0],
}
_REGRESSORS: dict[str, Callable[[Problem], Any]] = {
    "shallow tree": lambda problem: DecisionTreeRegressor(max_depth=3, random_state=0),
    "linear": lambda problem: Ridge(alpha=1.0),
    "neighbours": lambda problem: KNeighborsRegressor(_neighbours(problem)),
    "forest": lambda problem: ExtraTreesRegressor(100, min_samples_leaf=2, max_features=0.5, random_state=0),
    "few trees": _FEW[1],
    "boosted": _BOOSTED[1],
}
