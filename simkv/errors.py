"""Every error simkv raises on purpose, in one tree.

A message says what is wrong, where, why, and what to do; the command line prints it without a traceback
and the app shows it as a sentence.
"""

from __future__ import annotations


class SimkvError(Exception):
    """Base of all errors a user can cause and mend."""


class InputError(SimkvError):
    """A file, row or field that cannot be used.

    Args:
        problem: what was found, in words ("output_length is -3").
        file: the file's name as the user gave it.
        line: 1-based line (or row) number.
        field: the field's name in that file.
        expected: what would have been right ("a whole number of at least 0").
        hint: what to do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.file, self.line, self.field, self.expected, self.hint = problem, file, line, field, expected, hint
        where = [file or "", f"line {line}" if line is not None else "", f'field "{field}"' if field else ""]
        place = ", ".join(w for w in where if w)
        text = f"{place}: {problem}" if place else problem
        if expected:
            text += f"; expected {expected}"
        super().__init__(text + (f". {hint}" if hint else "."))


class SettingsError(SimkvError):
    """A setting outside its range, unknown, or in conflict with another.

    Args:
        field: the setting's name.
        value: what was given.
        allowed: the values or the range that are accepted.
        hint: why, or what to change.
    """

    def __init__(self, field: str, value: object, allowed: str, hint: str | None = None) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field}={value}: allowed is {allowed}" + (f". {hint}" if hint else "."))


class EngineError(SimkvError):
    """The engine cannot go on (a request that can never fit, a stalled queue)."""
