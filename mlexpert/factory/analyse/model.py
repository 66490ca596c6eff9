"""A language model as an analyst: it is shown the tables' heads and the page, and answers with fields of a blueprint.

    MLEXPERT_ANALYST_URL=http://127.0.0.1:8000/v1  MLEXPERT_ANALYST_MODEL=qwen3  [MLEXPERT_ANALYST_KEY=...]

Any server that speaks OpenAI's chat completions will do. Nothing it says is believed: each answer is laid over the
rules' blueprint and carried out on the files (`check`); what fails is said back to it, a few times. If all of an answer
cannot be carried out, those of its fields are taken that can. Without a usable answer the rules' blueprint stands.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests

from mlexpert.factory.analyse import Analyst, prose
from mlexpert.factory.analyse.check import problems
from mlexpert.factory.analyse.sheets import Sheet
from mlexpert.factory.records import RECIPES, Blueprint, Quarantine, Raw
from mlexpert.tasks.metrics import METRICS

ATTEMPTS = 3
TIMEOUT_S = 120.0
MAX_REPLY = 2**20  # bytes
MAX_TEXT, MAX_COLUMNS, MAX_CELL = 12_000, 80, 40  # of a page, a table and a cell that are shown
# What a model may decide. Id, text, seed and sizes are not its business.
FIELDS = (
    "modality", "domain", "train", "id_column", "target_columns", "metric", "settings", "labels", "columns", "recipe",
    "group_column", "time_column", "hidden", "roles", "files_column", "files_folder",
)  # fmt: skip


class EndpointError(Exception):
    """The endpoint gave no answer; the message says why, without the key."""


@dataclass(frozen=True)
class Endpoint:
    url: str  # up to and with /v1
    model: str
    key: str = field(default="", repr=False)  # never printed, never logged


def from_environment(environment: Mapping[str, str]) -> Endpoint | None:
    """The endpoint that the variables above name; None without a URL. Raises EndpointError without a model."""
    url, name = environment.get("MLEXPERT_ANALYST_URL", ""), environment.get("MLEXPERT_ANALYST_MODEL", "")
    if url and not name:
        raise EndpointError("MLEXPERT_ANALYST_URL is set and MLEXPERT_ANALYST_MODEL is not: name the model")
    return Endpoint(url.rstrip("/"), name, environment.get("MLEXPERT_ANALYST_KEY", "")) if url else None


def analyst(endpoint: Endpoint, say: Callable[[str], object] = lambda line: None) -> Analyst:
    """For `analyse.blueprint`. `say` is told, in one line a competition, what became of the model's answers."""

    def read(raw: Raw, tables: Sequence[Sheet], plan: Blueprint | None, wrong: Sequence[str]) -> Blueprint | None:
        try:
            found, what = answered(endpoint, raw, tables, plan, wrong)
        except EndpointError as error:
            found, what = None, f"{error}; the rules' reading stands"
        say(f"{raw.id}: {endpoint.model}: {what}")
        return found

    return read


def answered(
    endpoint: Endpoint, raw: Raw, tables: Sequence[Sheet], plan: Blueprint | None, wrong: Sequence[str]
) -> tuple[Blueprint | None, str]:
    """The best blueprint that came of it, None if none can be carried out, and what happened. Raises EndpointError."""
    talk = [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": page(raw, tables, plan, wrong)}]
    best: Blueprint | None = None
    for attempt in range(1, ATTEMPTS + 1):
        reply = ask(endpoint, talk)
        fields, faults = parsed(reply)
        whole, more = laid_over(raw, plan, fields)
        if whole is not None and not more:
            return whole, f"answer {attempt} can be carried out ({_changed(plan, whole)})"
        best = best or _part(raw, plan, fields)
        told = "; ".join([*faults, *more]) or "no field"
        talk += [
            {"role": "assistant", "content": reply},
            {"role": "user", "content": f"This cannot be carried out: {told}"},
        ]
    what = f"none of {ATTEMPTS} answers can be carried out as a whole"
    return best, what + (f"; taken from them: {_changed(plan, best)}" if best else "; the rules' reading stands")


# ---------------------------------------------------------------- answers
def parsed(reply: str) -> tuple[dict[str, Any], list[str]]:
    """Fields of the JSON object in a reply, and what is wrong with it."""
    found = re.search(r"\{.*\}", reply, re.S)
    try:
        values = json.loads(found[0]) if found else None
    except ValueError as error:
        return {}, [f"not JSON: {error}"]
    if not isinstance(values, dict):
        return {}, ["no JSON object"]
    unknown = sorted(values.keys() - set(FIELDS))
    fields = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name in FIELDS
    }
    return fields, [f"unknown fields {', '.join(unknown)}"] if unknown else []


def laid_over(raw: Raw, plan: Blueprint | None, fields: Mapping[str, Any]) -> tuple[Blueprint | None, list[str]]:
    """The blueprint with these fields, and what of it cannot be carried out."""
    try:
        base = {each.name: getattr(plan, each.name) for each in dataclasses.fields(plan)} if plan else _empty(raw)
        found = Blueprint(**(base | dict(fields)))
        return found, [one.text for one in problems(raw, found)]
    except Quarantine as error:
        return None, [error.reason]
    except TypeError as error:  # a required field is missing
        return None, [str(error).replace("Blueprint.__init__()", "the blueprint")]


def _part(raw: Raw, plan: Blueprint | None, fields: Mapping[str, Any]) -> Blueprint | None:
    """The rules' blueprint with those fields, one by one, that can be carried out; None if it gains nothing."""
    if plan is None or problems(raw, plan):
        return None
    best = plan
    for name, value in fields.items():
        found, wrong = laid_over(raw, best, {name: value})
        if found is not None and not wrong:
            best = found
    return best if best != plan else None


def _empty(raw: Raw) -> dict[str, Any]:
    title = raw.title or raw.id
    return {"id": raw.id, "title": title, "text": prose.body(raw.text), "modality": "tabular", "domain": "general"}


def _changed(plan: Blueprint | None, found: Blueprint | None) -> str:
    if plan is None or found is None:
        return "the rules had none" if found else "nothing"
    names = [each.name for each in dataclasses.fields(plan) if getattr(plan, each.name) != getattr(found, each.name)]
    return ", ".join(f"{name} = {getattr(found, name)!r}" for name in names) or "as the rules have it"


# ---------------------------------------------------------------- what it is shown
_INSTRUCTIONS = f"""You read a machine-learning competition and say how to make a task of it.
Answer with one JSON object. Its fields, all optional:
train: name of the labelled table; target_columns: list of columns to predict; id_column: a key of train, "" if none;
metric: one of {", ".join(sorted(METRICS))}; settings: object of what the metric must know (k, low, high, average, ...);
labels: list of all classes, the positive one last; recipe: one of {", ".join(RECIPES[1:])} - how to cut a test set from
train so that it asks what the competition asks; group_column (grouped, source), time_column (temporal);
hidden: columns of train that give the target away and that the competition's test lacks; columns: object of column ->
id, text, number, label, time or file; roles: object of role of the metric -> column; files_column and files_folder:
the column of train that names a file a row, and the folder they lie in; modality: tabular, text, image, audio, series;
domain: one word."""


def page(raw: Raw, tables: Sequence[Sheet], plan: Blueprint | None, wrong: Sequence[str]) -> str:
    """What a model needs to see: the page, the head of every table, and how far the rules came."""
    parts = [f"# {raw.title or raw.id}", raw.text[:MAX_TEXT], "# Tables", *map(_table, tables[:12])]
    if plan is not None:
        shown = {name: getattr(plan, name) for name in FIELDS if getattr(plan, name)}
        parts += ["# What rules made of it", json.dumps(shown, default=list)]
    if wrong:
        parts += ["# What is wrong with that", *wrong]
    return "\n".join(parts)


def _table(sheet: Sheet) -> str:
    lines = [f"{sheet.name}: {sheet.n_rows} rows, {len(sheet.columns)} columns"]
    for name in sheet.columns[:MAX_COLUMNS]:
        cells = sheet.cells[name]
        shown = ", ".join(repr(cell[:MAX_CELL]) for cell in list(dict.fromkeys(cells))[:3])
        lines.append(f"  {name}: {sheet.kind(name)}, {len(set(cells))} different, e.g. {shown}")
    return "\n".join(lines)


# ---------------------------------------------------------------- the endpoint
def ask(endpoint: Endpoint, talk: Sequence[Mapping[str, str]]) -> str:
    """The text of one reply. Raises EndpointError."""
    headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    body = {
        "model": endpoint.model,
        "messages": list(talk),
        "temperature": 0,
        "response_format": {"type": "json_object"},
    }
    try:
        with requests.post(
            f"{endpoint.url}/chat/completions", json=body, headers=headers, timeout=TIMEOUT_S, stream=True,
            allow_redirects=False,
        ) as response:  # fmt: skip
            data = b"".join(_bounded(response))
            if response.status_code != 200:
                raise EndpointError(f"{endpoint.url} answers {response.status_code} {response.reason}")
    except requests.RequestException as error:
        raise EndpointError(f"{endpoint.url} does not answer ({type(error).__name__})") from None
    try:
        return str(json.loads(data)["choices"][0]["message"]["content"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise EndpointError(f"{endpoint.url} answers in another form than chat completions ({error!r:.80})") from None


def _bounded(response: requests.Response) -> Iterator[bytes]:
    size = 0
    for part in response.iter_content(2**16):
        size += len(part)
        if size > MAX_REPLY:
            raise EndpointError(f"the reply is longer than {MAX_REPLY} bytes")
        yield part
