import math

import pytest

from simkv.ui import text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0 s"),
        (0.00042, "420 µs"),
        (0.84, "840 ms"),
        (1.84, "1.84 s"),
        (10.0, "10 s"),
        (12.44, "12.4 s"),
        (59.9, "1 min"),
        (200, "3 min 20 s"),
        (3840, "1 h 4 min"),
        (math.nan, "no data"),
        (None, "no data"),
    ],
)
def test_durations_read_naturally(value: float | None, words: str) -> None:
    assert text.seconds(value) == words


def test_no_data_is_never_zero() -> None:
    assert text.percent(math.nan) == text.percent(None) == text.count(None) == "no data"
    assert text.percent(0.0) == "0.0 %"


def test_clock_counts_hours() -> None:
    assert [text.clock(v) for v in (0, 59.9, 3_671, 36_000)] == ["0:00:00", "0:00:59", "1:01:11", "10:00:00"]


def test_memory_shows_both_units() -> None:
    assert text.memory(58_500_000_000) == "58.5 GB (54.5 GiB)"


@pytest.mark.parametrize(
    "name", ["**bold**", "[x](javascript:alert(1))", "<img src=x onerror=alert(1)>", "$x$", ":red[x]", "a_b_c", "`code`"]
)
def test_names_never_become_markdown(name: str) -> None:
    escaped = text.plain(name)
    assert all(escaped[i - 1] == "\\" for i, c in enumerate(escaped) if c in "*[]()<>$`_:" and i > 0)
    assert escaped.replace("\\", "") == name.replace("\\", "")


def test_plain_drops_control_characters_and_cuts() -> None:
    assert text.plain("a\nb\x00c\u202ed") == "a b c d"
    assert len(text.plain("x" * 500, 60)) == 60


def test_key_is_sixteen_digits() -> None:
    assert text.key_hex(0x9F3C) == "00000000 00009f3c"
