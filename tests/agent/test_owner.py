"""A lease counts as long as its process lives; on another host, as long as its time runs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from agent.owner import alive, this_process

PAST = datetime.now(UTC) - timedelta(minutes=1)
FUTURE = datetime.now(UTC) + timedelta(days=1)  # not minutes: the value is made when tests are collected


def test_this_process_lives_whatever_the_clock_says():
    assert alive(this_process(), PAST)
    assert this_process() != this_process()


def test_a_process_that_ended_holds_nothing():
    program = "from agent.owner import this_process; print(this_process())"
    owner = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not alive(owner.strip(), FUTURE)


def test_a_later_process_with_the_same_number_is_another_one():
    host, pid, start, token = this_process().rsplit(":", 3)
    assert not alive(f"{host}:{pid}:{int(start) - 1}:{token}", FUTURE)


@pytest.mark.parametrize(("until", "expected"), [(PAST, False), (FUTURE, True), (None, False)])
def test_on_another_host_the_clock_decides(until, expected):
    assert alive("elsewhere:1:1:x", until) is expected


@pytest.mark.parametrize("nonsense", ["", "x", "a:b:c:d"])
def test_nonsense_holds_nothing(nonsense):
    assert not alive(nonsense, FUTURE)
