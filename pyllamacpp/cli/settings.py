"""What /set changes in a chat: every parameter of sampling, and how answers are shown."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ParameterError
from ..params import ParamSpec, SamplingParams, specs

# Of the chat itself: the values, the default first, and what they do.
SWITCHES: dict[str, tuple[tuple[str, ...], str]] = {
    "think": (("auto", "on", "off"), "whether the model thinks first, where its template can be told"),
    "reasoning": (("show", "hide", "raw"), "thoughts: dimmed, left out, or as the model writes them"),
    "markdown": (("on", "off"), "render Markdown on a terminal"),
    "speed": (("on", "off"), "a line about tokens and time after each answer"),
}
PARAMETERS = {name: rule for name, rule in specs(SamplingParams).items() if name != "logprobs"}
_FORMS: dict[type, str] = {dict: 'JSON such as {"15": -100}', tuple: 'words, or JSON such as ["\\n"]'}
_TEMPLATE = "template."  # before the name of a variable of the chat template


class Settings:
    """The values now, and those that the chat began with.

    variables: of the chat template, beside its switch of thinking.
    """

    def __init__(
        self, params: SamplingParams, *, variables: Mapping[str, Any] | None = None, **switches: str
    ) -> None:
        self.params = params
        self.variables = dict(variables or {})
        self._begun = params
        self._switches = {name: values[0] for name, (values, _) in SWITCHES.items()} | switches

    def __getitem__(self, switch: str) -> str:
        return self._switches[switch]

    def set(self, name: str, text: str) -> str:
        """Set one from what was typed after its name; "default" is what the chat began with.

        Returns: name and value as they are now. Error: ParameterError for a bad name or value.
        """
        if name.startswith(_TEMPLATE):
            return self._set_variable(name.removeprefix(_TEMPLATE), text)
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

    def _set_variable(self, name: str, text: str) -> str:
        """text: JSON, or a text as it is; "default" leaves the variable to the template."""
        if not name.isidentifier():
            raise ParameterError(f"{name!r} cannot be the name of a variable")
        self.variables.pop(name, None)
        if text != "default":
            try:
                self.variables[name] = json.loads(text)
            except ValueError:
                self.variables[name] = text
        return f"{_TEMPLATE}{name} {json.dumps(self.variables.get(name, 'default'))}"

    def shown(self, name: str) -> str:
        if name in SWITCHES:
            return f"{name} {self[name]}"
        value = getattr(self.params, name)
        if isinstance(value, tuple):
            return f"{name} {' '.join(map(repr, value)) or 'none'}"
        if isinstance(value, Mapping):
            return f"{name} {json.dumps(dict(value)) if value else 'none'}"
        return f"{name} {'none' if value is None else value}"

    def table(self) -> list[tuple[str, str]]:
        """Name, value and help of everything that can be set."""
        rows = [(self.shown(name), what) for name, (_, what) in SWITCHES.items()]
        rows += [(self.shown(name), rule.help) for name, rule in PARAMETERS.items()]
        return rows + [
            (f"{_TEMPLATE}{name} {json.dumps(value)}", "a variable of the chat template")
            for name, value in self.variables.items()
        ]

    def changed(self) -> list[str]:
        """The parameters that differ from their defaults."""
        usual = SamplingParams()
        return [self.shown(name) for name in PARAMETERS if getattr(self.params, name) != getattr(usual, name)]


def _parse(name: str, text: str, rule: ParamSpec) -> Any:
    """The value of a parameter from text; its range is checked where it is made."""
    if text == "none" and (rule.optional or rule.kind in (tuple, dict)):
        return None if rule.optional or rule.kind is dict else ()
    try:
        if rule.kind is dict or text.startswith("["):
            return json.loads(text)
        if rule.kind is tuple:
            return shlex.split(text)
        return rule.kind(text)
    except ValueError:
        wanted = _FORMS.get(rule.kind, rule.range)
        raise ParameterError(f"{name} must be {wanted}, not {text!r}", rule.help) from None


def nearest(name: str, names: list[str]) -> str:
    """`; did you mean X?`, or nothing."""
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""
