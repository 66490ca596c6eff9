"""Reads an unpacked competition: which file is what, id, target, metric, groups, order in time -> a Blueprint.

    blueprint(raw)             by rules
    blueprint(raw, analyst)    a language model is asked as well: `model.analyst(endpoint)`

Rules look at names and columns first and at the prose last. Whatever they or a model say is carried out on the files
before it is used (`check`); a competition of which no blueprint can be carried out is quarantined with what a person
has to name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mlexpert.factory.analyse import prose
from mlexpert.factory.analyse.check import problems
from mlexpert.factory.analyse.choice import choose
from mlexpert.factory.analyse.files import Files, files
from mlexpert.factory.analyse.recipe import Recipe, recipe
from mlexpert.factory.analyse.roles import Roles, roles
from mlexpert.factory.analyse.sheets import Sheet, sheets
from mlexpert.factory.analyse.target import Target, target
from mlexpert.factory.records import Blueprint, Quarantine, Raw
from mlexpert.tasks.metrics import METRICS, Needs, number

YES = {"yes", "y", "true", "t", "1", "1.0", "positive", "pos", "spam", "present", "default", "churn"}
# raw files, their tables, the rules' blueprint (None: they found none), what is wrong with it -> another
Analyst = Callable[[Raw, Sequence[Sheet], Blueprint | None, Sequence[str]], Blueprint | None]


def blueprint(raw: Raw, analyst: Analyst | None = None) -> Blueprint:
    """How to make a task of `raw`. Raises Quarantine("plan", ...) saying what a person has to name."""
    tables, unreadable = sheets(raw.folder)
    plan, wrong = by_rules(raw, tables)
    if analyst is not None and (answered := analyst(raw, tables, plan, wrong)) is not None:
        plan, wrong = answered, []
    if plan is None or wrong:
        raise Quarantine("plan", "; ".join([*wrong, *unreadable[:3]]))
    return plan


def by_rules(raw: Raw, tables: Sequence[Sheet]) -> tuple[Blueprint | None, list[str]]:
    """The rules' blueprint, if they come to one, and what is wrong with it when it is tried."""
    try:
        plan = _plan(raw, tables)
    except Quarantine as error:
        return None, [error.reason]
    return plan, [one.text for one in problems(raw, plan)]


def _plan(raw: Raw, tables: Sequence[Sheet]) -> Blueprint:
    """What the rules say, not yet tried. Raises Quarantine."""
    given = roles(tables)
    found = target(given, raw.text)
    metric, settings = choose(given, found, raw.text)
    is_class = METRICS[metric].answers is Needs.LABEL
    cut = recipe(given, found.id_column, is_class, found.columns)
    named = files(raw.folder, given.train, found.id_column, found.columns)
    plan = Blueprint(
        id=raw.id,
        title=raw.title or raw.id,
        text=prose.body(raw.text),
        modality=_modality(given, found, cut, named),
        domain=prose.domain(raw.title, raw.text),
        train=named.train or given.train.name,
        id_column="" if named.train else found.id_column,
        target_columns=found.columns,
        metric=metric,
        settings=settings,
        labels=_labels(given, found, is_class),
        hidden=tuple(name for name in found.hidden if not named.train or name != found.id_column),
        files_column=named.column,
        files_folder=named.folder,
    )
    if given.answers is not None and given.test is not None and found.id_column:
        return replace(plan, recipe="ready", test=given.test.name, answers=given.answers.name)
    if given.test is not None and set(found.columns) <= set(given.test.columns):  # both come with the target
        return replace(plan, recipe="ready", test=given.test.name)
    return replace(plan, recipe=cut.recipe, group_column=cut.group_column, time_column=cut.time_column)


def _modality(given: Roles, found: Target, cut: Recipe, named: Files) -> str:
    """What most of the input is."""
    if named.kind:
        return named.kind
    kinds = [given.train.kind(name) for name in given.train.columns if name not in (found.id_column, *found.columns)]
    if "text" in kinds and kinds.count("number") <= 3:
        return "text"
    return "series" if cut.recipe == "temporal" else "tabular"


def _labels(given: Roles, found: Target, is_class: bool) -> tuple[str, ...]:
    """Of two labels that say yes and no the yes comes last; otherwise the order is left to the builder."""
    values = {cell for name in found.columns for cell in given.train.cells[name]} - {""}
    if not is_class or len(values) != 2:
        return ()
    yes = [cell for cell in values if cell.lower() in YES or (number(cell) > 0 and number(min(values)) == 0)]
    return (*sorted(values - set(yes)), *yes) if len(yes) == 1 else ()
