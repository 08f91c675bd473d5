"""What /set changes in a chat: every parameter of sampling, and how answers are shown."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import replace
from typing import Any

from ..errors import ParameterError
from ..params import ParamSpec, SamplingParams, specs
from .options import NOT_FOR_A_TERMINAL

# Of the chat itself: the values, the default first, and what they do.
SWITCHES: dict[str, tuple[tuple[str, ...], str]] = {
    "think": (("auto", "on", "off"), "whether the model thinks first, where its template can be told"),
    "reasoning": (("show", "hide", "raw"), "thoughts: dimmed, left out, or as the model writes them"),
    "markdown": (("on", "off"), "render Markdown on a terminal"),
    "speed": (("on", "off"), "a line about tokens and time after each answer"),
}
PARAMETERS = {name: rule for name, rule in specs(SamplingParams).items() if name not in NOT_FOR_A_TERMINAL}


class Settings:
    """The values now, and those that the chat began with."""

    def __init__(self, params: SamplingParams, **switches: str) -> None:
        self.params = params
        self._begun = params
        self._switches = {name: values[0] for name, (values, _) in SWITCHES.items()} | switches

    def __getitem__(self, switch: str) -> str:
        return self._switches[switch]

    def set(self, name: str, text: str) -> str:
        """Set one from what was typed after its name; "default" is what the chat began with.

        Returns: name and value as they are now. Error: ParameterError for a bad name or value.
        """
        name = name.lstrip("-").replace("-", "_")
        name = {flag.lstrip("-"): key for key, rule in PARAMETERS.items() for flag in rule.flags}.get(
            name, name
        )
        if name in SWITCHES:
            values, what = SWITCHES[name]
            value = values[0] if text == "default" else text
            if value not in values:
                raise ParameterError(f"{name} is one of {', '.join(values)}: {what}")
            self._switches[name] = value
        elif name in PARAMETERS:
            value = getattr(self._begun, name) if text == "default" else _parse(name, text, PARAMETERS[name])
            self.params = replace(self.params, **{name: value})
        else:
            raise ParameterError(f"there is no {name} to set{nearest(name, [*SWITCHES, *PARAMETERS])}")
        return self.shown(name)

    def shown(self, name: str) -> str:
        if name in SWITCHES:
            return f"{name} {self[name]}"
        value = getattr(self.params, name)
        if isinstance(value, tuple):
            return f"{name} {' '.join(map(repr, value)) or 'none'}"
        return f"{name} {'none' if value is None else value}"

    def table(self) -> list[tuple[str, str]]:
        """Name, value and help of everything that can be set."""
        rows = [(self.shown(name), what) for name, (_, what) in SWITCHES.items()]
        return rows + [(self.shown(name), rule.help) for name, rule in PARAMETERS.items()]

    def changed(self) -> list[str]:
        """The parameters that differ from their defaults."""
        usual = SamplingParams()
        return [self.shown(name) for name in PARAMETERS if getattr(self.params, name) != getattr(usual, name)]


def _parse(name: str, text: str, rule: ParamSpec) -> Any:
    """The value of a parameter from text; its range is checked where it is made."""
    if text == "none" and (rule.optional or rule.kind is tuple):
        return None if rule.optional else ()
    try:
        if rule.kind is tuple:
            return shlex.split(text)
        return rule.kind(text)
    except ValueError:
        raise ParameterError(f"{name} must be {rule.range}, not {text!r}", rule.help) from None


def nearest(name: str, names: list[str]) -> str:
    """`; did you mean X?`, or nothing."""
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""
