"""Which toy is drawn for which grader of MLE-bench."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from experiments.bench.grader_shapes import cars, characters, chests, covid, masks, stacks
from experiments.bench.grader_toys import (
    Toy,
    by_type,
    fractures,
    gestures,
    identities,
    kept,
    labelled,
    lungs,
    numbers,
    ordered,
    ranked,
    rated,
    scored,
    shared_out,
    spans,
    tagged,
    texts,
    trips,
    voted,
    with_padding,
)
from mlexpert.factory.mlebench_metrics import Grader

# These match rows by position, so a shuffled submission is another submission.
POSITIONAL = (
    "nomad2018-predict-transparent-conductors", "smartphone-decimeter-2022", "vesuvius-challenge-ink-detection",
    "uw-madison-gi-tract-image-segmentation", "stanford-covid-vaccine", "vinbigdata-chest-xray-abnormalities-detection",
)  # fmt: skip


BY_METRIC: Mapping[str, Callable[..., Toy]] = {
    **dict.fromkeys(("accuracy", "error_rate", "micro_f1", "macro_f1", "mcc"), labelled),
    **dict.fromkeys(("auc", "weighted_auc", "probabilistic_f", "lwlrap"), scored),
    **dict.fromkeys(("rmse", "rmsle", "mae", "pearson", "spearman", "angular_error"), numbers),
    **dict.fromkeys(("exact_match", "levenshtein", "word_jaccard"), texts),
    "qwk": rated, "logloss": shared_out, "kl_divergence": voted, "bias_auc": identities, "log_mae": by_type,
    "laplace": lungs, "distance_quantiles": trips, "map_at_k": ranked, "order": ordered, "multilabel_f": tagged,
    "any_of": spans, "point_f1": characters, "cuboid_map": cars, "volume_overlap": stacks,
}  # fmt: skip
SPECIAL: Mapping[str, Callable[..., Toy]] = {
    "jigsaw-toxic-comment-classification-challenge": with_padding,
    "rsna-2022-cervical-spine-fracture-detection": fractures,
    "stanford-covid-vaccine": kept("keep", True, False),
    "ventilator-pressure-prediction": kept("u_out", 0, 1),
    "multi-modal-gesture-recognition": gestures,
    "google-research-identify-contrails-reduce-global-warming": masks(6, 7, sizes=("height", "width")),
    "hubmap-kidney-segmentation": masks(6, 7, "encoding", sizes=("height_pixels", "width_pixels")),
    "tgs-salt-identification-challenge": masks(101, 101, empty_alone=False),
    "vesuvius-challenge-ink-detection": masks(6, 7, empty=0.0, sizes=("height", "width")),
    "vinbigdata-chest-xray-abnormalities-detection": chests,
    "siim-covid19-detection": covid,
}


def draw(grader: Grader, package: str, rng: np.random.Generator) -> Toy:
    """One random toy; `package` is the grader's, where some lists of labels are."""
    make = SPECIAL.get(grader.competition) or BY_METRIC[grader.metric]
    toy = make(grader, package, rng)
    if grader.competition in POSITIONAL:
        return toy
    shuffled = toy.submission.sample(frac=1.0, random_state=int(rng.integers(2**31))).reset_index(drop=True)
    return Toy(toy.answers, shuffled, toy.targets, toy.predictions, toy.labels, toy.beside)
