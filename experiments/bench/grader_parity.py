"""Our metrics against MLE-bench's 82 graders on random well-formed submissions.

    python -m experiments.bench.grader_parity --checkout=DIR [--trials=20] [--only=NAME] [--seed=0]

DIR is a working tree of openai/mle-bench, which is not part of this project; its graders need their own requirements
(py7zr, PyYAML, Levenshtein, pyquaternion, shapely, pycocotools; pandas 2, NumPy below 2.4) and no data set. Prints, for
each grader, the largest difference of the scores over the trials; exits with 1 if one differs without a known reason.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.grader_draw import draw
from mlexpert.factory.mlebench_metrics import GRADERS, Grader
from mlexpert.tasks.metrics import METRICS, bind, evaluate, read_answers

TOLERANCE = 1e-9
SLOW = ("kuzushiji-recognition", "3d-object-detection-for-autonomous-vehicles")  # start a pool of processes each time


def main() -> None:
    options = _options()
    sys.path.insert(0, str(options.checkout))
    logging.disable(logging.WARNING)
    wrong = []
    for grader in GRADERS:
        if options.only and options.only not in grader.competition:
            continue
        trials = min(3, options.trials) if grader.competition in SLOW else options.trials
        verdict, agrees = _compare(grader, trials, options.seed)
        print(f"{grader.competition:58s} {grader.metric:20s} {verdict}", flush=True)
        if not agrees and not grader.differs:
            wrong.append(grader.competition)
    print(f"{len(wrong)} of {len(GRADERS)} graders disagree without a known reason: {wrong}")
    sys.exit(bool(wrong))


def _compare(grader: Grader, trials: int, seed: int) -> tuple[str, bool]:
    package = f"mlebench.competitions.{grader.competition}"
    differences = []
    try:
        module = importlib.import_module(f"{package}.grade")
        for trial in range(trials):
            ours, theirs = _scores(grader, module, package, np.random.default_rng((seed, trial)))
            if grader.competition.startswith("predict-volcanic"):
                ours = float(round(ours))  # the known difference, so that the rest is compared
            differences.append(abs(ours - theirs) / max(1.0, abs(theirs)))
    except Exception as error:  # whatever a grader may raise is a finding, the others go on
        return f"FAILS: {type(error).__name__}: {error}"[:150], False
    worst = float(np.max(differences))
    agrees = worst <= TOLERANCE
    known = f" ({grader.differs})" if grader.differs else ""
    return f"{'agrees' if agrees else 'DIFFERS'} {worst:.1e} over {trials}{known}"[:150], agrees


def _scores(grader: Grader, module: Any, package: str, rng: np.random.Generator) -> tuple[float, float]:
    toy = draw(grader, package, rng)
    metric = bind(METRICS[grader.metric], grader.settings)
    answers = read_answers(metric, toy.targets, toy.labels, toy.beside)
    ours = evaluate(metric, answers, toy.predictions, len(toy.labels))
    given = toy.answers if isinstance(toy.answers, list) else toy.answers.copy()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        return ours, float(module.grade(toy.submission.copy(), given))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="our metrics against MLE-bench's graders")
    parser.add_argument("--checkout", type=Path, required=True, help="a working tree of openai/mle-bench")
    parser.add_argument("--trials", type=int, default=20, help="random submissions per grader")
    parser.add_argument("--only", default="", help="competitions whose name holds this")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.checkout / "mlebench" / "competitions").is_dir():
        parser.error(f"{options.checkout} is no working tree of mle-bench: no mlebench/competitions in it")
    return options


if __name__ == "__main__":
    main()
