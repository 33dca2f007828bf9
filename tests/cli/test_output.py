"""The JSON contract of standard output."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.output import clean, emit, json_stdout, jsonable


@dataclass
class Sample:
    path: Path
    value: float


def test_values_that_json_lacks_become_plain() -> None:
    plain = jsonable({"a": Sample(Path("/x"), math.nan), "b": (1, math.inf), 3: "x"})
    assert plain == {"a": {"path": "/x", "value": None}, "b": [1, None], "3": "x"}


def test_nothing_but_the_document_reaches_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with json_stdout(True):
        print("a library prints")  # noqa: T201
        os.write(1, b"a C library writes\n")
        emit({"text": "line\nbreak \u2028 \udce9"})
    out, err = capfd.readouterr()
    assert json.loads(out) == {"schema_version": 1, "text": "line\nbreak \u2028 \udce9"}
    assert out.count("\n") == 1
    assert "a library prints" in err
    assert "a C library writes" in err


def test_standard_output_is_restored(capfd: pytest.CaptureFixture[str]) -> None:
    with json_stdout(True):
        pass
    sys.stdout.write("back\n")
    sys.stdout.flush()
    assert capfd.readouterr().out == "back\n"


def test_stored_text_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[31mb\x07\x9bc\td\ne") == "a\ufffd[31mb\ufffd\ufffdc\td\ne"
