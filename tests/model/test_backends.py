"""Which kernels run, and what is said of them."""

import jax
import pytest

from mlexpert.model import backends
from mlexpert.model.attention import ATTENTION_BACKENDS, default_attention
from mlexpert.model.backends import Choice, attention_of, told
from mlexpert.model.config import preset
from mlexpert.model.grouped import default_backend

MICRO = preset("micro")


def test_every_device_has_its_own(monkeypatch):
    assert (default_attention(), default_backend()) == ("chunked", "blocked")
    for device, own in (("tpu", ("splash", "ragged_dot")), ("gpu", ("triton", "triton"))):
        monkeypatch.setattr(jax, "default_backend", lambda device=device: device)
        assert (default_attention(), default_backend()) == own
        assert own[0] in ATTENTION_BACKENDS


def test_the_usual_one_needs_no_reason():
    assert attention_of(MICRO, 512, usual="splash") == Choice("splash", "")
    assert attention_of(MICRO, 512, asked="splash", usual="splash") == Choice("splash", "")
    assert attention_of(MICRO, 300) == Choice("chunked", "")


def test_a_default_that_cannot_do_a_shape_gives_way_and_says_why():
    assert attention_of(MICRO, 512, 4, usual="splash").name == "splash"
    found = attention_of(MICRO, 512, 8, usual="splash")
    assert found == Choice("chunked", "not splash: 64 queries of a row are no multiple of 128")
    found = attention_of(MICRO, 512, usual="triton")
    assert found.name == "chunked" and found.reason.startswith("not triton: ") and "8" in found.reason


def test_one_that_was_asked_for_runs_or_is_an_error():
    assert attention_of(MICRO, 512, asked="splash", usual="triton") == Choice("splash", "as asked, not triton")
    with pytest.raises(ValueError, match="splash attention: 500 queries of a row"):
        attention_of(MICRO, 500, asked="splash", usual="splash")
    with pytest.raises(ValueError, match="attention backend 'cudnn': one of chunked, splash, triton"):
        attention_of(MICRO, 512, asked="cudnn")


def test_what_people_read():
    chunked, splash = Choice("chunked", "not splash: 200 ..."), Choice("splash", "")
    line = told(MICRO, [splash, chunked, splash], backends.grouped_matmul("blocked", "triton"))
    assert line == "attention splash, chunked (not splash: 200 ...); grouped matmul blocked (as asked, not triton)"
    assert told(preset("qwen3_8b"), [splash], backends.grouped_matmul("")) == "attention splash"
