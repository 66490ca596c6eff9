"""What the user sees while it runs: which stage, how far, what matters, how long still.

On a terminal a stage is one live bar; in a log it is a line every few seconds, so that a file stays readable.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm


def say(line: str) -> None:
    """One line above the bars, at once."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


def heading(number: int, total: int, title: str) -> None:
    say(f"[{number}/{total}] {title}")


@contextmanager
def bar(title: str, total: int, done: int = 0, unit: str = "it") -> Iterator[tqdm]:
    """A progress bar; `advance` moves it; time left is shown by itself."""
    live = sys.stderr.isatty()
    with tqdm(
        total=total,
        initial=done,
        desc=f"  {title}",
        unit=unit,
        dynamic_ncols=live,
        mininterval=0.3 if live else 10.0,
        maxinterval=1.0 if live else 15.0,
        ascii=None if live else " =",
        bar_format="{desc}: {percentage:3.0f}% |{bar:20}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
    ) as progress:
        yield progress


def advance(progress: tqdm, shown: str, to: int | None = None) -> None:
    """One more (or up to `to`), with the figures that matter; redrawn as often as the bar's own pace allows."""
    progress.set_postfix_str(shown, refresh=False)
    progress.update(1 if to is None else to - progress.n)


def figures(**values: float | int | str) -> str:
    """`reward +0.12  medals 31%`: rates are given as fractions under a name that ends in `_rate`."""
    shown = []
    for name, value in values.items():
        if name.endswith("_rate"):
            shown.append(f"{name[:-5]} {100 * float(value):.0f}%")
        elif name == "reward":
            shown.append(f"reward {value:+.2f}")
        else:
            shown.append(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}")
    return "  ".join(shown)
