"""The official `kaggle` client: imported when it is needed, held to a range, kept silent, its faults explained.

What has to be known about it (2.2): importing it authenticates, may print, and older versions leave the program when
there is no token; with VERBOSE in the environment it prints its headers, credentials among them; its requests wait for
ever. So it is imported inside of `connect`, without VERBOSE, with stdout caught, and its sessions get a time limit.

Credentials are the user's own, from the places where the client itself looks. They are not read here beyond whether
they exist, not stored, and cut out of every message.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mlexpert.factory.records import Quarantine

WANTED = "'kaggle>=2.2.5,<3' six"  # it imports six and does not say so
_LEAST, _BELOW = (2, 2, 5), (3,)
SECONDS = (20.0, 120.0)  # to connect, and between two bytes of an answer
_SECRETS = ("KAGGLE_KEY", "KAGGLE_API_TOKEN")
_ONE_AT_A_TIME = threading.Lock()  # what is silenced is the stdout of the whole process
_FILES = ("kaggle.json", "access_token", "access_token.txt", "credentials.json")


class KaggleError(Quarantine):
    """Kaggle cannot give something. `kind`: client, credentials, rules, absent, busy, network, half or reply."""

    def __init__(self, kind: str, reason: str, stage: str = "fetch") -> None:
        super().__init__(stage, _without_secrets(reason), f"kaggle-{kind}")
        self.problem = kind


def connect() -> Any:
    """An authenticated `KaggleApi`. Raises KaggleError of kind client, credentials or network."""
    if not _has_credentials():
        raise KaggleError(
            "credentials",
            "no Kaggle credentials: make a token at https://www.kaggle.com/settings, then set KAGGLE_API_TOKEN, or "
            "KAGGLE_USERNAME and KAGGLE_KEY, or leave the file where Kaggle's own client looks (~/.kaggle)",
        )
    with _ONE_AT_A_TIME, _silence():
        api = _api_class()()
        api.args = []  # neither another server nor --verbose, which would print credentials
        api.already_printed_version_warning = True  # of a newer version: WANTED decides here
        call(api.authenticate, "authentication")
    return api


def _has_credentials() -> bool:
    if os.environ.get("KAGGLE_API_TOKEN") or (os.environ.get("KAGGLE_USERNAME") and os.environ.get("KAGGLE_KEY")):
        return True
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    places = [os.environ.get("KAGGLE_CONFIG_DIR") or "", Path.home() / ".kaggle", Path(config) / "kaggle"]
    return any((Path(place) / name).is_file() for place in places if place for name in _FILES)


def _api_class() -> Any:
    verbose = {name: os.environ.pop(name) for name in ("VERBOSE", "VERBOSE_OUTPUT") if name in os.environ}
    try:
        import kaggle
        from kaggle.api.kaggle_api_extended import KaggleApi
    except ImportError as error:
        raise KaggleError("client", f"Kaggle's client is not there ({error}): pip install {WANTED}") from error
    except SystemExit:  # versions before 1.8 leave the program without a token
        raise KaggleError("client", f"this version of Kaggle's client is too old: pip install {WANTED}") from None
    except OSError as error:
        raise KaggleError("client", f"Kaggle's client cannot start: {error}") from error
    finally:
        os.environ.update(verbose)
    version = str(getattr(kaggle, "__version__", "0"))
    if not _LEAST <= tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < _BELOW:
        raise KaggleError("client", f"kaggle {version} is installed; pip install {WANTED}")
    return _with_time_limit(KaggleApi)


def _with_time_limit(base: Any) -> Any:
    import requests.adapters

    class Limited(requests.adapters.HTTPAdapter):
        def send(self, request: Any, **keywords: Any) -> Any:  # type: ignore[override]
            keywords["timeout"] = keywords.get("timeout") or SECONDS
            return super().send(request, **keywords)

    class Api(base):
        def build_kaggle_client(self) -> Any:
            client = super().build_kaggle_client()
            http = client.http_client()
            http.__enter__()  # makes the session, which the client then keeps
            for scheme in ("https://", "http://"):
                http._session.mount(scheme, Limited())
            return client

    return Api


# ---------------------------------------------------------------- calls and their faults
def call(function: Callable[..., Any], what: str, *arguments: Any, **keywords: Any) -> Any:
    """What the client's `function` gives; `what` is the competition, or what is asked for. Raises KaggleError."""
    try:
        return function(*arguments, **keywords)
    except KaggleError:
        raise
    except SystemExit:
        raise KaggleError("credentials", "Kaggle's client found no valid credentials; make a new token") from None
    except Exception as error:
        # Without its cause: the text of an HTTP error holds signed addresses.
        raise _explained(error, what) from None


def _explained(error: Exception, what: str) -> KaggleError:
    import requests

    response = getattr(error, "response", None)
    if response is not None and not isinstance(error, requests.exceptions.JSONDecodeError):
        return _of_status(response.status_code, _message(response), what)
    if isinstance(error, requests.RequestException | ConnectionError | TimeoutError) and not isinstance(
        error, ValueError
    ):
        name = type(error).__name__
        return KaggleError("network", f"{what}: Kaggle is not reached ({name}); is there a way to api.kaggle.com?")
    if isinstance(error, ValueError) and "size" in str(error):
        return KaggleError("half", f"{what}: half a download ({error}); run the same command again")
    if isinstance(error, OSError):
        return KaggleError("client", f"{what}: {error}")
    return KaggleError(
        "reply", f"{what}: Kaggle answered what its client cannot read ({type(error).__name__}: {error})"
    )


def _of_status(status: int, message: str, what: str) -> KaggleError:
    said = f"HTTP {status}" + (f", {message!r}" if message else "")
    page = f"https://www.kaggle.com/competitions/{what}"
    if status == 401:
        return KaggleError("credentials", f"{what}: Kaggle does not accept the credentials ({said}); make a new token")
    if status == 403:
        return KaggleError(
            "rules",
            f"{what}: Kaggle refuses ({said}). Log in as the owner of the token, open {page}/rules, read the rules and "
            "accept them (this program does not do that for you), then run the same command again; competitions by "
            "invitation stay closed",
        )
    if status == 404:
        return KaggleError("absent", f"{what}: Kaggle knows nothing of that name ({said}); see {page}")
    if status == 429 or status >= 500:
        return KaggleError("busy", f"{what}: Kaggle is busy or broken ({said}); try again later")
    return KaggleError("reply", f"{what}: Kaggle refuses the request ({said})")


def _message(response: Any) -> str:
    try:
        return str(response.json().get("message", ""))[:300]
    except (ValueError, AttributeError, json.JSONDecodeError):
        return ""


def _without_secrets(text: str) -> str:
    for value in filter(None, map(os.environ.get, _SECRETS)):
        text = text.replace(value, "[secret]")
    return re.sub(r"https?://[^\s'\"]*\?[^\s'\"]*", "[address]", text)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
