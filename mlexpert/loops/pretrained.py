"""A model that somebody else trained: a Hugging Face folder or a GGUF file, with its tokenizer and chat format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlexpert.model import hf
from mlexpert.model.config import ModelConfig
from mlexpert.model.gguf import Gguf, tokenizer_json
from mlexpert.model.hf_config import DTYPES, from_json, read_json
from mlexpert.model.params import Params
from mlexpert.model.tensors import Folder, ModelFileError, Tensors
from mlexpert.rollout.tokenizer import Tokenizer, with_tags


@dataclass(frozen=True)
class Pretrained:
    """Opened, with its weights still on disk."""

    config: ModelConfig
    tensors: Tensors
    tokenizer: tokenizers.Tokenizer
    template: str  # "" for a model that was never taught to chat
    special: Mapping[str, str]  # bos_token, eos_token, ...: what the template may ask for
    stop_ids: tuple[int, ...]

    def params(self) -> Params:
        return hf.load_params(self.config, self.tensors)

    def agent_tokenizer(self) -> Tokenizer:
        """With the tags of our episodes; see `with_tags`. Raises TokenizerError."""
        return with_tags(self.tokenizer, self.config.vocab_size, self.tensors.where)

    def prompt(self, text: str) -> str:
        """The text that the model continues: the user's words as a chat, or as they are for a base model.

        The template is a program from the model's files: it runs in jinja2's sandbox.
        """
        if not self.template:
            return text
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            return environment.from_string(self.template).render(
                messages=[{"role": "user", "content": text}], add_generation_prompt=True, tools=None, **self.special
            )
        except TemplateError as error:
            raise ModelFileError(f"{self.tensors.where}: its chat template fails ({error})") from error


def open_model(path: Path, dtype: str = "") -> Pretrained:
    """A *.gguf file or a folder, to be computed in `dtype` or, if that is "", in the file's own (GGUF: float32).

    Raises ModelFileError for what is missing, damaged or not built.
    """
    if dtype and dtype not in DTYPES:
        raise ModelFileError(f"dtype {dtype!r}: one of {', '.join(DTYPES)}")
    path = path.expanduser()
    if path.suffix == ".gguf":
        return _of_gguf(path, dtype or "float32")
    if path.is_file():
        raise ModelFileError(f"{path} is a file; expected a *.gguf file or a folder with config.json and *.safetensors")
    return _of_folder(path, dtype)


def _of_gguf(path: Path, dtype: str) -> Pretrained:
    opened = Gguf(path)
    tokenizer = _tokenizer(json.dumps(tokenizer_json(opened.metadata, opened.where)), opened.where)
    tokens = opened.metadata["tokenizer.ggml.tokens"]
    ids = {name: opened.config_json[name] for name in hf.TOKEN_IDS if name in opened.config_json}
    special = {name.removesuffix("_id"): tokens[i] for name, i in ids.items()}
    template = opened.metadata.get("tokenizer.chat_template", "")
    stops = (ids["eos_token_id"],) if "eos_token_id" in ids else ()
    return Pretrained(opened.config(dtype), opened, tokenizer, template, special, stops)


def _of_folder(folder: Path, dtype: str) -> Pretrained:
    raw = read_json(folder / "config.json")
    config = from_json(raw, folder.name, str(folder / "config.json"))
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist; it belongs to every model that a fast tokenizer serves")
    described = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    special = {name: _content(described[name]) for name in ("bos_token", "eos_token") if described.get(name)}
    tokenizer = _tokenizer(path.read_text(encoding="utf-8"), str(path))
    stops = _stop_ids(folder, raw, tokenizer, special)
    config = replace(config, dtype=dtype) if dtype else config
    return Pretrained(config, Folder(folder), tokenizer, _template(folder, described), special, stops)


def _template(folder: Path, described: Mapping[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    found = file.read_text(encoding="utf-8") if file.is_file() else described.get("chat_template") or ""
    if isinstance(found, list):  # several, by name
        found = {entry["name"]: entry["template"] for entry in found}.get("default", "")
    return found


def _stop_ids(
    folder: Path, raw: Mapping[str, Any], tokenizer: tokenizers.Tokenizer, special: Mapping[str, str]
) -> tuple[int, ...]:
    """Every id that any of the folder's files calls the end."""
    generation = folder / "generation_config.json"
    files = [raw, raw.get("text_config") or {}, read_json(generation) if generation.is_file() else {}]
    found: set[int] = set()
    for ids in (file.get("eos_token_id") for file in files):
        found |= set(ids if isinstance(ids, list) else [] if ids is None else [ids])
    token = tokenizer.token_to_id(special["eos_token"]) if "eos_token" in special else None
    return tuple(sorted(found | ({token} if token is not None else set())))


def _tokenizer(text: str, where: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise ModelFileError(f"{where}: its tokenizer cannot be read ({error})") from error


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _raise(message: str) -> None:
    raise TemplateError(message)
