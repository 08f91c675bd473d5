"""Running a stranger's template: Jinja2's sandbox, with limits on time, memory and what can be reached.

Jinja2 keeps a template from the host's objects, but not from looping for ever or from building a string of a
terabyte. So every loop, call, filter and operator of a template passes through a `Limits` that counts what it
may still use: CPU time, the size of one value, the sum of all. What grows out of proportion inside one call
(`replace`, `join`, `center`, ...) is estimated beforehand, as nothing could stop it later.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ..errors import ChatTemplateError
from .limits import FILTERS, ITEMS, METHODS, WIDEST, Limits, check_operator, weigh

_SOURCE_MOST = 1 << 20  # characters; the largest published template has 35 thousand


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What templates may call of values: nothing that makes other kinds of objects or formats beyond control.
_METHODS: dict[type, frozenset[str]] = {
    str: _names(
        """capitalize casefold center count endswith expandtabs find format index isalnum isalpha isascii
        isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower
        lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split
        splitlines startswith strip swapcase title upper zfill"""
    ),
    list: _names("append clear copy count extend index insert pop remove reverse sort"),
    tuple: _names("count index"),
    dict: _names("clear copy get items keys pop popitem setdefault update values"),
}
# Filters that neither print nor compare what they are given, and tests that compare it.
_SHALLOW = _names(
    """length count first last list map select reject selectattr rejectattr default d items batch slice
    reverse attr random"""
)
_COMPARING = _names("eq == equalto ne != lt < lessthan le <= gt > greaterthan ge >= in")


class Program:
    """A compiled template. Safe to share between threads.

    words: what the template may look for in its input: its string constants and names of fields
    """

    def __init__(
        self,
        source: str,
        *,
        functions: Mapping[str, Callable[..., Any]],
        filters: Mapping[str, Callable[..., Any]],
    ) -> None:
        """Errors: ChatTemplateError with the line where the source does not parse."""
        if len(source) > _SOURCE_MOST:
            raise ChatTemplateError(
                f"the chat template has {len(source)} characters; at most {_SOURCE_MOST} are accepted"
            )
        self._environment = _Environment(functions, filters)
        try:
            tree = self._environment.parse(source)
            words = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
            words.update(node.attr for node in tree.find_all(nodes.Getattr))
            self.words = frozenset(words)
            self._template = self._environment.from_string(_Watch().visit(tree))
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the chat template does not parse: line {error.lineno}: {error.message}"
            ) from error
        except (TemplateError, RecursionError, MemoryError, SyntaxError, ValueError) as error:
            raise ChatTemplateError(f"the chat template does not compile: {error}") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text. Errors: ChatTemplateError, whatever the template does."""
        try:
            with self._environment.limited(Limits(weigh(variables), len(variables.get("messages", ())))):
                return self._template.render(variables)
        except ChatTemplateError:
            raise
        except RecursionError:
            message = "the chat template nests its calls or values too deeply"
        except Exception as error:  # whatever a stranger's program may raise
            message = f"the chat template failed: {type(error).__name__}: {error}"
        raise ChatTemplateError(
            message, "Another template can be given with `chat_template=` or `--chat-template FILE`."
        )


class _Watch(NodeTransformer):
    """Puts calls of the environment's own functions where a template could otherwise run unobserved."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_ask("tick")))
        if node.test is not None:  # evaluated in a loop of its own
            node.test = nodes.And(_ask("tick"), node.test)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _ask("joined", *node.nodes)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _compared(node.expr)
        for operand in node.ops:
            operand.expr = _compared(operand.expr)
        return node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _ask("small", node) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _ask("charged", node) if isinstance(node.arg, nodes.Slice) else node


def _ask(function: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(function), list(arguments), [], None, None)


def _compared(expr: nodes.Expr) -> nodes.Expr:
    return expr if isinstance(expr, (nodes.Const, nodes.List)) else _ask("weighed", expr)


class _Generation(Extension):
    """`{% generation %} ... {% endgeneration %}` marks answers for training; here a scope of its own."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [nodes.Scope(body, lineno=line)]


class _Environment(SandboxedEnvironment):
    """Hugging Face's conventions under `Limits`; an unsafe attribute is an error, not an empty string."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], filters: Mapping[str, Callable[..., Any]]
    ) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is computed while compiling, where no limits are in force
            finalize=self._printed,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        self._running = threading.local()
        self.concat = self._concatenated  # type: ignore[method-assign]
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals.update(functions)
        self.filters.update(filters)
        for name, filter in self.filters.items():
            self.filters[name] = self._guarded_filter(name, filter)
        for name in _COMPARING & self.tests.keys():
            test: Any = self.tests[name]
            self.tests[name] = self._guarded_test(test)

    # Limits

    def limited(self, limits: Limits) -> _Running:
        return _Running(self._running, limits)

    @property
    def limits(self) -> Limits:
        limits: Limits = self._running.limits  # AttributeError, and no folding, while compiling
        return limits

    def tick(self) -> bool:
        self.limits.tick()
        return True

    def weighed(self, value: Any) -> Any:
        """`value`, which is about to be compared: not if that could take for ever."""
        self.limits.check(value)
        return value

    def charged(self, value: Any) -> Any:
        return self.limits.charge(value)

    def small(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """`value`, which may be hashed, which visits shared parts again and again."""
        self.limits.check(value, WIDEST)
        return value

    def joined(self, *values: Any) -> str:
        """`~`"""
        self.limits.check(values)
        text = "".join(map(str, values))
        self.limits.charge(text)
        return text

    def _printed(self, value: Any) -> Any:
        if not isinstance(value, Undefined):
            self.limits.check(value)
        return value

    def _concatenated(self, pieces: Iterable[str]) -> str:
        """The pieces of an output, which come as the template runs."""
        return self.limits.gather(pieces)

    # What can be reached

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, names in _METHODS.items():
            if isinstance(obj, kind):
                return attr in names
        if obj is None or isinstance(obj, (bool, int, float, complex, bytes)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        if isinstance(obj, dict) and attribute in obj:  # a field of that name
            return obj[attribute]  # type: ignore[no-any-return]
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__} object is unsafe")

    # What can grow

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # str.format comes wrapped
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if owner is __self:  # what _Watch has put there
            return __obj(*args)
        limits = __self.limits
        limits.tick()
        args = tuple(map(_held, args))
        if isinstance(owner, list):
            limits.check_items(len(owner) + max((len(a) for a in args if isinstance(a, list)), default=1))
            if name in ("index", "count", "remove", "sort"):
                limits.check((owner, args))
        elif isinstance(owner, str) and name in METHODS:
            METHODS[name](limits, owner, args, kwargs)
        return limits.charge(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        check_operator(self.limits, operator, left, right)
        return self.limits.charge(super().call_binop(context, operator, left, right))

    def _guarded_filter(self, name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
        n_hidden = 1 if hasattr(filter, "jinja_pass_arg") else 0  # the context or the environment comes first

        @functools.wraps(filter)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            limits = self.limits
            limits.tick()
            hidden, (value, *rest) = args[:n_hidden], args[n_hidden:]
            limits.check_width(*rest, *kwargs.values())
            if name not in _SHALLOW:
                value = _held(value)
                limits.check(value)
            if name in FILTERS:
                FILTERS[name](limits, value, rest, kwargs)
            return limits.charge(filter(*hidden, value, *rest, **kwargs))

        return guarded

    def _guarded_test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def guarded(*args: Any) -> Any:
            self.limits.check(args)
            return test(*args)

        return guarded


class _Running:
    """The limits in force in this thread. Renderings may nest: the clock is the caller's own function."""

    def __init__(self, running: threading.local, limits: Limits) -> None:
        self._running, self._limits = running, limits
        self._before: Limits | None = getattr(running, "limits", None)

    def __enter__(self) -> None:
        self._running.limits = self._limits

    def __exit__(self, *exception: object) -> None:
        if self._before is None:
            del self._running.limits
        else:
            self._running.limits = self._before


def _held(value: Any) -> Any:
    """A list of what a lazy filter yields: it would go on for ever if the list it reads grew meanwhile."""
    return list(islice(value, ITEMS + 1)) if isinstance(value, Iterator) else value
