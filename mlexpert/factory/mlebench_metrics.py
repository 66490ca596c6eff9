"""Which metric of ours, with which settings, stands for which of MLE-bench's 82 graders (its code of February 2026).

`differs` says where a grader departs from what its competition or we define, in a way that can change a score of a well
formed submission; `note` says what has to be prepared, and where edges differ. Labels named "module.NAME" are read from
the grader's package; where a task has many labels, or its own are only in its data, a few stand for them here: a task
made of a prepared folder takes all labels, and columns named so, from its files (`mlebench_answers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DIGITS = ("0", "1")


@dataclass(frozen=True)
class Grader:
    competition: str
    metric: str
    id: str  # id column
    targets: tuple[str, ...] | str  # target columns
    labels: tuple[str, ...] | str = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)  # role -> column of the answers
    onehot: bool = False  # answers and submissions have one column per label
    note: str = ""
    differs: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)  # column of the answers -> what submissions call it
    refused: str = ""  # why no task can be made of it


def _auc(competition: str, id: str, *targets: str, **fields: Any) -> Grader:
    return Grader(competition, "auc", id, targets, DIGITS, **fields)


def _pick(competition: str, metric: str, id: str, target: str, *labels: str, **fields: Any) -> Grader:
    """One label per row."""
    return Grader(competition, metric, id, (target,), labels, **fields)


def _cells(competition: str, metric: str, id: str, target: str, **fields: Any) -> Grader:
    return Grader(competition, metric, id, (target,), **fields)


FIVE = ("0", "1", "2", "3", "4")
WORDS = ("yes", "no", "up", "down")
PLAIN_AUC = (
    _auc("aerial-cactus-identification", "id", "has_cactus"),
    _auc("detecting-insults-in-social-commentary", "Comment", "Insult"),
    _auc("histopathologic-cancer-detection", "id", "label"),
    _auc("invasive-species-monitoring", "name", "invasive"),
    _auc("mlsp-2013-birds", "Id", "Probability"),
    _auc("random-acts-of-pizza", "request_id", "requester_received_pizza"),
    _auc("rsna-miccai-brain-tumor-radiogenomic-classification", "BraTS21ID", "MGMT_value"),
    _auc("seti-breakthrough-listen", "id", "target"),
    _auc("siim-isic-melanoma-classification", "image_name", "target"),
    _auc("tabular-playground-series-may-2022", "id", "target"),
    _auc("the-icml-2013-whale-challenge-right-whale-redux", "clip", "probability"),
    _auc("plant-pathology-2020-fgvc7", "image_id", "healthy", "multiple_diseases", "rust", "scab"),
    _auc("playground-series-s3e18", "id", "EC1", "EC2"),
)
_SEEN = {"absent": "seen"}
PLAIN_LABELS = (
    _pick("cassava-leaf-disease-classification", "accuracy", "image_id", "label", *FIVE),
    _pick("cdiscount-image-classification-challenge", "accuracy", "_id", "category_id", "1000010653", "1000004079"),
    _pick("iwildcam-2020-fgvc7", "accuracy", "Id", "Category", *FIVE),
    _pick("ml2021spring-hw2", "accuracy", "Id", "ClassId", *FIVE),
    _pick("movie-review-sentiment-analysis-kernels-only", "accuracy", "PhraseId", "Sentiment", *FIVE),
    _pick("paddy-disease-classification", "accuracy", "image_id", "label", *WORDS),
    _pick("spaceship-titanic", "accuracy", "PassengerId", "Transported", "False", "True"),
    _pick("tabular-playground-series-dec-2021", "accuracy", "Id", "Cover_Type", "1", "2", "3", "4", "6", "7"),
    _pick("tensorflow-speech-recognition-challenge", "accuracy", "fname", "label", *WORDS),
    _pick("inaturalist-2019-fgvc6", "error_rate", "id", "predicted", *FIVE),
    _pick("plant-seedlings-classification", "micro_f1", "file", "species", *WORDS),
    _pick("nfl-player-contact-detection", "mcc", "contact_id", "contact", *DIGITS),
    *(
        _pick(name, "macro_f1", id, target, *FIVE, settings=_SEEN)
        for name, id, target in (
            ("herbarium-2020-fgvc7", "Id", "Predicted"),
            ("herbarium-2021-fgvc8", "Id", "Predicted"),
            ("herbarium-2022-fgvc9", "Id", "Predicted"),
            ("iwildcam-2019-fgvc6", "Id", "Category"),
        )
    ),
)
_RANGE = (
    "takes the ratings seen in answers and submission for the range, so a grade that nobody gives changes the score"
)
_FIVE, _SIX = {"low": 0, "high": 4}, {"low": 1, "high": 6}
_ESSAYS = "learning-agency-lab-automated-essay-scoring-2"
RATINGS = (
    _cells("aptos2019-blindness-detection", "qwk", "id_code", "diagnosis", settings=_FIVE, differs=_RANGE),
    _cells(_ESSAYS, "qwk", "essay_id", "score", settings=_SIX, differs=_RANGE),
)
_CLIP = "clips probabilities at 2.2e-16, we at 1e-15: 36.04 or 34.54 for a confident miss"
_SHARES = "allows row sums 1e-6 away from 1, we 1e-3; " + _CLIP
PROBABILITIES = (
    Grader("dog-breed-identification", "logloss", "id", ("breed",), "dogs.DOGS_LIST", onehot=True, differs=_SHARES),
    Grader("leaf-classification", "logloss", "id", ("species",), "classes.CLASSES", onehot=True, differs=_SHARES),
    Grader(
        "spooky-author-identification", "logloss", "id", ("author",), "classes.CLASSES", onehot=True, differs=_SHARES
    ),
    Grader(
        "lmsys-chatbot-arena",
        "logloss",
        "id",
        ("winner",),
        ("winner_model_a", "winner_model_b", "winner_tie"),
        onehot=True,
        differs=_SHARES,
    ),
    Grader("dogs-vs-cats-redux-kernels-edition", "logloss", "id", ("label",), DIGITS, differs=_CLIP),
    Grader("statoil-iceberg-classifier-challenge", "logloss", "id", ("is_iceberg",), DIGITS, differs=_CLIP),
    Grader(
        "rsna-breast-cancer-detection",
        "probabilistic_f",
        "prediction_id",
        ("cancer",),
        DIGITS,
        note="predictions outside of [0, 1] are clipped there, invalid here",
    ),
    Grader(
        "rsna-2022-cervical-spine-fracture-detection",
        "logloss",
        "row_id",
        ("fractured",),
        DIGITS,
        beside={"weight": "weight", "group": "StudyInstanceUID"},
        note="the answers need each row's study, and its weight: 1, for patient_overall 7, and twice that for a 1",
        differs="a 0 that was predicted with certainty to be 1 costs 34.43 there, 34.54 here",
    ),
    Grader(
        "alaska2-image-steganalysis",
        "weighted_auc",
        "Id",
        ("Label",),
        DIGITS,
        settings={"edges": [0.0, 0.4, 1.0], "weights": [2, 1]},
    ),
    Grader(
        "hms-harmful-brain-activity-classification",
        "kl_divergence",
        "eeg_id",
        "constants.TARGET_COLS",
        note="row sums may be 1e-5 away from 1 there, 1e-3 here",
    ),
    Grader("freesound-audio-tagging-2019", "lwlrap", "fname", "vocabulary.CLASS_NAMES", DIGITS),
    _auc(
        "jigsaw-toxic-comment-classification-challenge",
        "id",
        "toxic",
        "severe_toxic",
        "obscene",
        "threat",
        "insult",
        "identity_hate",
        beside={"keep": "keep"},
        note="rows of -1 are not scored: keep is false",
    ),
    Grader("ranzcr-clip-catheter-line-classification", "auc", "StudyInstanceUID", "classes.CLASSES", DIGITS),
    Grader(
        "jigsaw-unintended-bias-in-toxicity-classification",
        "bias_auc",
        "id",
        ("prediction",),
        DIGITS,
        beside={"identity": "nine columns, male to psychiatric_or_mental_illness"},
        renamed={"toxicity": "prediction"},
        note="toxicity of the answers is cut at 0.5 first",
        differs="cuts the predictions at 0.5 as well, which leaves little of a ranking; the competition does not",
    ),
)
NUMBERS = (
    _cells("denoising-dirty-documents", "rmse", "id", "value"),
    _cells("new-york-city-taxi-fare-prediction", "rmse", "key", "fare_amount"),
    _cells(
        "petfinder-pawpularity-score",
        "rmse",
        "Id",
        "Pawpularity",
        note="predictions outside of 1 to 100 are invalid there",
    ),
    Grader(
        "stanford-covid-vaccine",
        "rmse",
        "id_seqpos",
        ("reactivity", "deg_Mg_pH10", "deg_Mg_50C"),
        beside={"keep": "keep"},
        note="two further columns must be there and are not scored",
        differs="keeps the wrong rows if the submission is in another order than the answers",
    ),
    Grader(
        "nomad2018-predict-transparent-conductors",
        "rmsle",
        "id",
        ("formation_energy_ev_natom", "bandgap_energy_ev"),
        note="a prediction between -1 and 0 is invalid here, scored there; rows are matched by position there",
    ),
    _cells(
        "predict-volcanic-eruptions-ingv-oe",
        "mae",
        "segment_id",
        "time_to_eruption",
        differs="rounds the score to a whole number",
    ),
    _cells(
        "ventilator-pressure-prediction",
        "mae",
        "id",
        "pressure",
        beside={"keep": "u_out"},
        note="keep is true where u_out is 0",
    ),
    _cells(
        "champs-scalar-coupling",
        "log_mae",
        "id",
        "scalar_coupling_constant",
        beside={"group": "type"},
        note="a type without any error: ln 1e-9 here, minus infinity there",
    ),
    Grader(
        "google-quest-challenge",
        "spearman",
        "qa_id",
        "classes.CLASSES",
        note="a constant column: 0 here, NaN for the whole score there",
    ),
    _cells(
        "us-patent-phrase-to-phrase-matching", "pearson", "id", "score", note="constant predictions: 0 here, NaN there"
    ),
    _cells(
        "osic-pulmonary-fibrosis-progression",
        "laplace",
        "Patient_Week",
        "FVC",
        beside={"keep": "keep"},
        note="keep is true for the last three weeks of each patient; an empty confidence is 0 there, invalid here",
    ),
    Grader("icecube-neutrinos-in-deep-ice", "angular_error", "event_id", ("azimuth", "zenith")),
    Grader(
        "smartphone-decimeter-2022",
        "distance_quantiles",
        "tripId_UnixTimeMillis",
        ("LatitudeDegrees", "LongitudeDegrees"),
        beside={"group": "tripId"},
        note="an id has to be joined of two columns; rows are matched by position there",
        refused="its submissions name a row by two columns, tripId and UnixTimeMillis, and here there is one id",
    ),
)
_TAGS = "ignores predicted labels that no answer has; here a label outside of the task's set is invalid"
LISTS = (
    _cells(
        "h-and-m-personalized-fashion-recommendations",
        "map_at_k",
        "customer_id",
        "prediction",
        settings={"k": 12},
        note="customers without an answer may be predicted there; here ids must be those of the sample",
    ),
    _cells("hotel-id-2021-fgvc8", "map_at_k", "image", "hotel_id", settings={"k": 5}),
    _cells("whale-categorization-playground", "map_at_k", "Image", "Id", settings={"k": 5}),
    _cells("AI4Code", "order", "id", "cell_order"),
    *(
        _pick(name, "multilabel_f", id, target, *WORDS, settings={"average": "micro"}, differs=_TAGS)
        for name, id, target in (
            ("facebook-recruiting-iii-keyword-extraction", "Id", "Tags"),
            ("imet-2020-fgvc7", "id", "attribute_ids"),
            ("plant-pathology-2021-fgvc8", "image", "labels"),
        )
    ),
)
TEXTS = (
    *(
        _cells(
            f"text-normalization-challenge-{language}-language",
            "exact_match",
            "id",
            "after",
            note="texts such as NA and an empty cell are the same there, not here",
        )
        for language in ("english", "russian")
    ),
    _cells("billion-word-imputation", "levenshtein", "id", "sentence"),
    _cells("bms-molecular-translation", "levenshtein", "image_id", "InChI"),
    _cells(
        "multi-modal-gesture-recognition", "levenshtein", "Id", "Sequence", settings={"unit": "words", "per": "truth"}
    ),
    _cells(
        "chaii-hindi-and-tamil-question-answering",
        "word_jaccard",
        "id",
        "PredictionString",
        note="two texts without words: 1 here, 0 there",
    ),
    _cells(
        "tweet-sentiment-extraction",
        "word_jaccard",
        "textID",
        "selected_text",
        note="two texts without words: 1 here, an exception there",
    ),
    _cells(
        "tensorflow2-question-answering",
        "any_of",
        "example_id",
        "PredictionString",
        note="JSON lines become a cell of accepted answers per id; the grader's micro F1 is the share of right rows",
    ),
)
_SIZE = {"height": "height", "width": "width"}
IMAGES = (
    _cells(
        "google-research-identify-contrails-reduce-global-warming",
        "dice",
        "record_id",
        "encoded_pixels",
        settings={"average": "pixels"},
        beside=_SIZE,
    ),
    _cells(
        "hubmap-kidney-segmentation",
        "dice",
        "id",
        "predicted",
        beside={"height": "height_pixels", "width": "width_pixels"},
        renamed={"encoding": "predicted"},
    ),
    _cells(
        "tgs-salt-identification-challenge",
        "mask_precision",
        "id",
        "rle_mask",
        settings={"shape": [101, 101]},
        note="of two bounds such as 0.6 theirs is a bit higher, so an overlap of exactly 0.6 may differ",
        differs="reads an empty prediction as the full mask where the answer is not empty",
    ),
    _cells(
        "vesuvius-challenge-ink-detection",
        "mask_f",
        "Id",
        "Predicted",
        settings={"beta": 0.5},
        beside=_SIZE,
        note="rows empty in both: 1 here, 0 there",
    ),
    _cells(
        "uw-madison-gi-tract-image-segmentation",
        "volume_overlap",
        "id",
        "predicted",
        beside={"height": "image_height", "width": "image_width", "volume": "case and day", "layer": "slice"},
        note="rows are matched by position there; the id here must name the class too",
        refused="its submissions name a row by two columns, id and class, and here there is one id",
    ),
    _cells(
        "kuzushiji-recognition",
        "point_f1",
        "image_id",
        "labels",
        note="boxes of the answers become label, confidence and four borders",
    ),
    _cells(
        "vinbigdata-chest-xray-abnormalities-detection",
        "box_map",
        "image_id",
        "PredictionString",
        settings={"curve": "coco", "thresholds": [0.4]},
        note="rows of the answers become one cell per image",
        differs="hands borders to a program that takes left, top, width and height, so boxes overlap too much; "
        "the first box and the first prediction never match",
    ),
    _cells(
        "siim-covid19-detection",
        "box_map",
        "id",
        "PredictionString",
        settings={"curve": "voc", "thresholds": [0.5]},
        differs="counts missed boxes as found with confidence 0 and images without a label as right, so its average "
        "precision is another number than by the VOC rule that the competition names",
    ),
    _cells(
        "3d-object-detection-for-autonomous-vehicles",
        "cuboid_map",
        "Id",
        "PredictionString",
        note="a scene without objects: refused in the answers here, NaN for the whole score there",
    ),
)
GRADERS = sorted(
    (*PLAIN_AUC, *PLAIN_LABELS, *RATINGS, *PROBABILITIES, *NUMBERS, *LISTS, *TEXTS, *IMAGES),
    key=lambda grader: grader.competition.lower(),
)
BY_NAME: Mapping[str, Grader] = {grader.competition: grader for grader in GRADERS}
