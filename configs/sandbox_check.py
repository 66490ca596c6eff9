"""Whether sandboxes hold on this machine: every attack against each kind that can be had here.

    python experiments/run.py --config=configs/sandbox_check.py
    python experiments/run.py --config=configs/sandbox_check.py --config.kinds=namespaces,landlock
    python experiments/run.py --config=configs/sandbox_check.py --config.attacks=fork,socket
    two CPU cores, about two minutes a kind; prints a table, ends with code 1 if a promise was broken

Which kinds there are depends on who asks: namespaces needs root, user needs anybody else; docker needs an engine.
"""

from ml_collections import ConfigDict


def get_config(preset: str = "laptop") -> ConfigDict:
    if preset != "laptop":
        raise ValueError(f"unknown preset {preset!r}: there is only laptop")
    # `kinds`: "" is all of docker, namespaces, user, landlock, plain. `attacks`: words of their names, "" is all.
    return ConfigDict(
        dict(
            name="sandbox_check",
            loop="sandbox_check",
            kinds="",
            attacks="",
            image="mlexpert-sandbox:latest",
            runtime="",
        )
    )
