"""The house stays readable in an afternoon: bounds on functions and files, and no room for leftovers."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*(ROOT / "mlexpert").rglob("*.py"), *(ROOT / "experiments").rglob("*.py")])
FUNCTION_LINES, FILE_LINES = 60, 400


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in functions(path)
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long


def test_no_file_is_longer_than_a_sitting():
    assert not [str(p.relative_to(ROOT)) for p in SOURCES if p.read_text().count("\n") > FILE_LINES]


def test_every_module_says_what_it_is():
    silent = [p for p in SOURCES if p.name != "__init__.py" and not ast.get_docstring(ast.parse(p.read_text()))]
    assert not silent


def test_there_is_no_utils_room():
    assert not [p for p in (ROOT / "mlexpert").rglob("*") if p.stem in ("utils", "helpers", "common", "misc")]
