"""A template is a stranger's program: stopped within a second, whatever it does, and it reaches nothing."""

from __future__ import annotations

import threading
import time

import pytest

from pyllamacpp.errors import ChatTemplateError
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.limits import weigh

USER = {"role": "user", "content": "Hi"}


def render(source: str, content: str = "Hi") -> str:
    return ChatTemplate(source).render([{"role": "user", "content": content}])


NS = "{% set n = namespace(x='', l=[], d={}) %}"


def grow(expression: str, start: str = "'ab'") -> str:
    """A template that assigns n.x from itself a hundred times."""
    return (
        NS + "{% set n.x = " + start + " %}"
        "{% for i in range(100) %}{% set n.x = " + expression + " %}{% endfor %}{{ n.x }}"
    )


ENDLESS = {
    "nested ranges": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a list that grows": "{% set l = [1] %}{% for a in l %}{% set _ = l.append(a) %}{% endfor %}",
    "in its condition": "{% set l = [1] %}{% for a in l if l.append(a) %}x{% endfor %}",
    "in its output": "{% set l = [1] %}{% for a in l %}{{ l.append(a) or '' }}{% endfor %}",
    "a recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a macro twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(40) }}",
    "blocks": "{% block a %}{% endblock %}" + "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{{ self.a() }}{% endfor %}{% endfor %}",
    "filters": "{% set l = range(99999) | list %}"
    "{% for i in range(99999) %}{{ l | map('string') | list | length }}{% endfor %}",
    "comparisons": "{% set l = range(99999) | list %}{% for i in range(99999) %}{{ 'x' in l }}{% endfor %}",
}
HUGE = {
    "repetition": "{{ 'a' * 10 ** 9 }}",
    "repetition of a list": "{{ [1] * 10 ** 9 }}",
    "repetition from the left": "{{ 10 ** 9 * 'a' }}",
    "a range": "{{ range(10 ** 9) | list }}",
    "a power": "{{ 9 ** 99999 }}",
    "a product": grow("n.x * n.x", "9 ** 999"),
    "a rounding": "{{ 1.5 | round(10 ** 9, 'floor') }}",
    "addition": grow("n.x + n.x"),
    "addition of lists": grow("n.x + n.x", "[1]"),
    "concatenation": grow("n.x ~ n.x"),
    "a join": grow("n.x.join([n.x, n.x, n.x])"),
    "the join filter": grow("[n.x, n.x, n.x] | join(n.x)"),
    "a replacement": grow("n.x.replace('a', n.x)"),
    "the replace filter": grow("n.x | replace('a', n.x)"),
    "extend": NS + "{% set _ = n.l.append(1) %}{% for i in range(99) %}{% set _ = n.l.extend(n.l) %}"
    "{% endfor %}",
    "a capture": NS + "{% set n.x = 'ab' %}{% for i in range(99) %}{% set y %}{{ n.x }}{{ n.x }}{% endset %}"
    "{% set n.x = y %}{% endfor %}",
    "centring": "{{ 'a'.center(10 ** 9) }}",
    "the center filter": "{{ 'a' | center(10 ** 9) }}",
    "zfill": "{{ '1'.zfill(10 ** 9) }}",
    "indenting": "{{ ('\\n' * 99999) | indent(9999) }}",
    "indenting by text": "{{ ('\\n' * 99999) | indent('a' * 99999) }}",
    "tabs": "{{ ('\\t' * 99999).expandtabs(9999) }}",
    "a format": "{{ '{:1000000000}'.format(1) }}",
    "a format of a width": "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "a format many times": "{{ ('{0}' * 9999).format('a' * 99999) }}",
    "a printf": "{{ '%1000000000d' % 1 }}",
    "a printf of a width": "{{ '%*d' % (10 ** 9, 1) }}",
    "the format filter": "{{ '%1000000000d' | format(1) }}",
    "json": "{{ range(9999) | list | tojson(indent=10 ** 9) }}",
    "json indented by text": "{{ range(99999) | list | tojson(indent='a' * 9999) }}",
    "a nest of lists": grow("[n.x, n.x]"),
    "a nest as json": grow("[n.x, n.x]").replace("{{ n.x }}", "{{ n.x | tojson }}"),
    "a nest as text": grow("[n.x, n.x]").replace("{{ n.x }}", "{{ n.x | string | length }}"),
    "a nest appended": grow("[n.x, n.x]").replace("{{ n.x }}", "{{ ('a' ~ n.x) | length }}"),
    "nests compared": grow("[n.x, n.x]") .replace("{{ n.x }}", "{{ n.x == n.l }}"),
    "nests sorted": grow("[n.x, n.x]").replace("{{ n.x }}", "{{ [n.x, n.x] | sort | length }}"),
    "a nest found": grow("[n.x, n.x]").replace("{{ n.x }}", "{{ [n.l].index(n.x) }}"),
    "a nest as a key": grow("(n.x, n.x)").replace("{{ n.x }}", "{{ {n.x: 1} | length }}"),
    "output": "{% set x = 'a' * 3000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}",
    "many values": NS + "{% for i in range(99999) %}{% set _ = n.l.append('a' * 3000000 ~ i) %}{% endfor %}",
    "a sum of lists": "{{ ([range(999) | list] * 999) | sum(start=[]) }}",
    "a template": "{{ 1 }}" + "x" * (1 << 20),
    "nested brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nested blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "a recursive macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a date": "{{ strftime_now('%c' * 10 ** 9) }}",
}  # fmt: skip
ESCAPES = [
    "{{ ''.__class__ }}", "{{ ''['__class__'] }}", "{{ '' | attr('__class__') }}",
    "{{ ''['__cla' ~ 'ss__'] }}", "{{ messages | map(attribute='__class__') | list }}",
    "{{ messages | map(attribute='append.__self__') | list }}",
    "{{ messages | map('attr', '__class__') | list }}", "{{ messages.append.__self__ }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}", "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ ('{0.__class__}' | attr('format'))(1) }}", "{{ ''.format.__globals__ }}",
    "{{ self.__init__.__globals__ }}", "{{ self._TemplateReference__context }}",
    "{{ namespace.__init__.__globals__ }}", "{{ dict.__base__ }}",
    "{{ dict.mro() }}", "{{ range.__class__ }}", "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__closure__ }}", "{{ strftime_now.__code__ }}",
    "{% for a in [1] %}{{ loop.__init__ }}{% endfor %}", "{% for a in [1] %}{{ loop._iterator }}{% endfor %}",
    "{% macro m() %}{{ caller.__init__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{% endmacro %}{{ m._func }}", "{{ lipsum.__globals__ }}", "{{ cycler.__init__ }}",
    "{{ joiner.__init__ }}", "{{ (1).to_bytes(10 ** 9, 'big') }}", "{{ (1.5).hex() }}", "{{ ''.encode() }}",
    "{{ 'a'.translate({97: 'x' * 99999}) }}", "{{ x.__class__ }}", "{{ none.__class__ }}",
    "{{ messages[0].fromkeys([1]) }}", "{{ environment.globals.x }}", "{{ context.parent.x }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ config.x }}", "{{ request.x }}",
    "{{ ('' | safe).__html__ }}", "{{ ('' | safe).unescape() }}", "{{ open('x') }}", "{{ get_flashed() }}",
]  # fmt: skip


def stopped(source: str) -> str:
    started = time.thread_time()
    with pytest.raises(ChatTemplateError) as caught:
        render(source)
    assert time.thread_time() - started < 1.2  # of CPU: other work on the machine is not its fault
    return str(caught.value)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=list(ENDLESS))
def test_endless_templates_are_stopped(source: str) -> None:
    assert any(word in stopped(source) for word in ("ran too long", "too deeply", "more than"))


@pytest.mark.parametrize("source", HUGE.values(), ids=list(HUGE))
def test_huge_values_are_refused(source: str) -> None:
    stopped(source)


@pytest.mark.parametrize("source", ESCAPES)
def test_escapes_are_plain_errors(source: str) -> None:
    stopped(source)


def test_the_limits_of_one_rendering_are_its_own() -> None:
    template = ChatTemplate("{% for i in range(20000) %}{{ i }}{% endfor %}")
    for _ in range(20):  # the sum of them would be too much
        template.render([USER])
    endless = ChatTemplate(ENDLESS["nested ranges"])
    results: list[str] = []

    def beside() -> None:
        results.append(template.render([USER]))

    thread = threading.Thread(target=beside)
    thread.start()
    with pytest.raises(ChatTemplateError, match="too long"):
        endless.render([USER])
    thread.join()
    assert len(results[0]) == len("".join(map(str, range(20000))))


def test_long_conversations_have_room() -> None:
    source = (
        "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' + m.content | trim | replace('\\n', ' ') }}"
        "{% if m.content.startswith('x') %}{{ m.content.split('x')[-1] }}{% endif %}{% endfor %}"
    )
    long = "x" + "word \n" * ((10 << 20) // 6)
    assert len(render(source, long)) > 10 << 20
    assert len(ChatTemplate(source).render([{"role": "user", "content": "hello"}] * 20_000)) == 20_000 * 13


def test_a_lazy_filter_of_a_growing_list_ends() -> None:
    source = "{% set l = [{'a': 1}] %}{% set _ = l.extend(l | map(attribute='a')) %}{{ l }}"
    assert render(source) == "[{'a': 1}, 1]"


def test_fields_with_names_of_methods() -> None:
    message = {"role": "user", "content": "x", "fromkeys": "f", "popitem": 1}
    assert ChatTemplate("{{ messages[0].fromkeys }}").render([message]) == "f"
    assert ChatTemplate("{{ messages[0]['items'] is defined }}").render([message]) == "True"


def test_ordinary_methods_and_filters_work() -> None:
    source = (
        "{{ ' a,b '.strip().split(',') | join('-') }} {{ 'ab'.replace('a', 'c').upper().center(6) }}|"
        "{{ '%s:%03d' % ('x', 7) }} {{ '{}-{:>4}'.format('a', 'b') }} {{ 2 ** 10 * 3 + 1 }} {{ [1] + [2] }}"
        "{{ ('a', 'b') }}{{ 'a' in ('a', 'b') }}{{ {'a': 1}.items() | list }}{{ [3, 1, 2] | sort | first }}"
    )
    assert render(source) == ("a-b   CB  |x:007 a-   b 3073 [1, 2]('a', 'b')True[('a', 1)]1")


def test_weight_counts_shared_parts() -> None:
    nest: list[object] = ["ab"]
    for _ in range(50):
        nest = [nest, nest]
    assert weigh(["ab", {"k": 1}]) == 1 + 3 + 1 + 2 + 1
    assert weigh(nest, 1000) > 1000
