"""Line-wise BPE: lossless on any text, one token for a line that recurs, two for a name nobody has seen before."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlexpert.rollout import tokenizer as tk

FIRST = ["soil", "river", "pump", "motor", "crop", "wind", "flow", "heat", "load", "rain", "valve", "grid"]
SECOND = ["depth", "rate", "level", "index", "speed", "temp", "width", "count", "ratio", "age"]
MODELS = {
    "linear_model": "Ridge()",
    "ensemble": "RandomForestRegressor()",
    "svm": "SVR()",
    "neighbors": "KNeighborsRegressor()",
}
UNSEEN = ("wind", "age")  # a combination that the corpus below never holds


def description(target: str, a: str, b: str) -> str:
    return f"""# Predict a number
Metric: rmse, lower is better.
Columns: `{a}`, `{b}`
Some values are missing.
Target: `{target}`
"""


def script(target: str, a: str, b: str, package: str) -> str:
    return f"""import pandas as pd
from sklearn.{package} import {MODELS[package].removesuffix("()")}
from sklearn.model_selection import cross_val_score
train = pd.read_csv("train.csv")
test = pd.read_csv("test.csv")
t = "{target}"
y = train.pop(t)
X = train.drop(columns=["id"])
Z = test.drop(columns=["id"])
X["f"] = X["{a}"] * X["{b}"]
Z["f"] = Z["{a}"] * Z["{b}"]
X, Z = X.fillna(X.median()), Z.fillna(X.median())
model = {MODELS[package]}
print("cv", round(cross_val_score(model, X, y).mean(), 2))
model.fit(X, y)
pd.DataFrame({{"id": test["id"], t: model.predict(Z)}}).to_csv("submission.csv", index=False)
"""


def corpus(n: int) -> list[str]:
    rng = random.Random(0)
    names = [f"{a}_{b}" for a in FIRST for b in SECOND if (a, b) != UNSEEN]
    picks = [(*rng.sample(names, 3), rng.choice(list(MODELS))) for _ in range(n)]
    return [description(*names) + script(*names, package) for *names, package in picks]


@pytest.fixture(scope="module")
def tokenizer() -> tk.Tokenizer:
    return tk.train(corpus(200), 1536)


def pieces(tokenizer: tk.Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text)]


LINES = ["import pandas as pd\n", 'train = pd.read_csv("train.csv")\n', "y = train.pop(t)\n", "model.fit(X, y)\n", "\n"]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_recurs_is_one_token(tokenizer, line):
    assert pieces(tokenizer, line) == [line]


@pytest.mark.parametrize("line", ['t = "wind_age"\n', "Target: `wind_age`\n", "Columns: `wind_age`, `soil_depth`\n"])
def test_an_unseen_name_is_the_same_two_tokens_wherever_it_stands(tokenizer, line):
    found = pieces(tokenizer, line)
    assert found[1:3] == ["wind", "_age"]
    assert len(found) == 4 + 3 * line.count("soil_depth")


def test_names_outside_quotes_stay_in_their_line(tokenizer):
    assert len(pieces(tokenizer, "from sklearn.model_selection import cross_val_score\n")) == 1


def test_digits_are_single_tokens(tokenizer):
    assert pieces(tokenizer, "0.8312")[2:] == ["8", "3", "1", "2"]


def test_tags_are_one_token_and_in_no_other(tokenizer):
    text = (
        "<|im_start|>a<think>\nb\n</think><tool_call></tool_call><tool_response></tool_response><|im_end|><|endoftext|>"
    )
    held = [piece for piece in pieces(tokenizer, text) if "<" in piece]
    assert sorted(held) == sorted(tk.SPECIAL + tk.TAGS)
    trained_on_tags = tk.train(["<tool_call>\nrun\n</tool_call>\n"] * 50, 1024)
    assert sum("tool_call" in token for token in trained_on_tags.core.get_vocab()) == 2


def test_a_fixed_line_costs_one_entry_of_the_vocabulary():
    line = "The quick brown fox jumps over the lazy dog while many other animals sleep.\n"
    learnt = tk.train([line] * 20, 1024)
    assert pieces(learnt, line) == [line]
    assert learnt.vocab_size - 256 - len(learnt.reserved) < len(line) // 4


def test_a_script_costs_a_third_of_word_level_bpe_at_most(tokenizer):
    """The reason for the whole pre-tokenisation: 16 lines in fewer than 50 tokens."""
    unseen = script("wind_age", "soil_depth", "rain_rate", "ensemble")
    assert len(tokenizer.encode(unseen)) <= 50


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([*tk.TAGS, *tk.SPECIAL, "`wind_age`", '"_a', "\r\n", "\n\n", "1", "x_y'", "é", " "])).map(
        "".join
    )
)
def test_tagged_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_saved_tokenizer_is_the_same_and_training_is_deterministic(tokenizer, tmp_path):
    tk.save(tokenizer, tmp_path / "deep" / "tokenizer.json")
    loaded = tk.load(tmp_path / "deep" / "tokenizer.json")
    again = tk.train(corpus(200), 1536)
    text = corpus(3)[2] + "<think>ünseen 12</think>"
    assert loaded.reserved == tokenizer.reserved and loaded.vocab_size == tokenizer.vocab_size
    assert loaded.encode(text).tolist() == tokenizer.encode(text).tolist() == again.encode(text).tolist()
    assert again.core.get_vocab() == tokenizer.core.get_vocab()


def test_the_vocabulary_keeps_its_bound_and_says_when_it_cannot(tokenizer):
    assert tk.train(corpus(50), 300).vocab_size == 300
    assert max(tokenizer.reserved.values()) < tokenizer.vocab_size <= 1536
    with pytest.raises(ValueError, match="too small"):
        tk.train(["a"], 200)


def test_a_file_without_the_tags_is_refused(tmp_path):
    with pytest.raises(tk.TokenizerError, match="no tokenizer at"):
        tk.load(tmp_path / "tokenizer.json")
    bare = tk.tokenizers.Tokenizer(tk.models.BPE())
    bare.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="lacks the tokens"):
        tk.load(tmp_path / "tokenizer.json")
