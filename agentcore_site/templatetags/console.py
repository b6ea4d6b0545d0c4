"""Filters and tags of the console: words, marks of a status, small pictures, and parts that pages repeat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from django import template
from django.template.context import Context
from django.template.defaultfilters import capfirst
from django.template.defaulttags import CsrfTokenNode, querystring
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from agentcore_site.console import svg
from agentcore_site.console.icons import PATHS, STATUS
from agentcore_site.console.svg import Picture
from agentcore_site.jobs.notifications import job_page
from agentcore_site.lib import figures
from agentcore_site.templatetags.figures import as_number, points

register = template.Library()

LONG, LONG_LINES = 600, 12


# -- words and lookups -------------------------------------------------------------------------------------------------


@register.filter
def code_words(text: Any) -> SafeString:
    """A text whose words between backticks are code."""
    parts = str(text).split("`")
    return format_html_join(
        "", "{}", [[format_html("<code>{}</code>", one) if n % 2 else one] for n, one in enumerate(parts)]
    )


@register.filter
def short(value: Any) -> str:
    """The last six characters of an identifier, by which people distinguish rows."""
    return str(value)[-6:]


@register.filter
def at(mapping: Any, key: Any) -> Any:
    """``mapping[key]``, or nothing."""
    if isinstance(mapping, Mapping):
        return mapping.get(key)
    if isinstance(mapping, Sequence) and isinstance(key, int) and -len(mapping) <= key < len(mapping):
        return mapping[key]
    return None


@register.filter
def words(value: Any) -> str:
    """``frac_reward_zero_std`` → ``frac reward zero std``."""
    return figures.spelled(str(value))


@register.filter
def shown(value: Any) -> str:
    """A setting's value as a person would write it."""
    if value is True:
        return "on"
    if value is False:
        return "off"
    if value is None or value == "":
        return "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


# -- marks and pictures ------------------------------------------------------------------------------------------------


@register.inclusion_tag("parts/chips.html", takes_context=True)
def chips(
    context: Context, name: str, choices: Any, chosen: Any = "", *, every: str = "All", anchor: str = ""
) -> dict[str, Any]:
    """Links that narrow a list by the parameter ``name``: to each of the choices, (key, title) or a word for both, and
    before them to all (``every``, unless it is "")."""
    pairs = [(choice, words(choice)) if isinstance(choice, str) else choice for choice in choices]
    found = [
        {"title": capfirst(title), "url": _narrowed(context, {name: key or None}) + anchor, "on": key == chosen}
        for key, title in ([("", every), *pairs] if every else pairs)
    ]
    return {"chips": found}


@register.inclusion_tag("parts/chosen.html", takes_context=True)
def chosen_chip(context: Context, title: str, *names: str, anchor: str = "") -> dict[str, Any]:
    """A filter that is set, with a cross that takes its parameters out of the address."""
    return {"title": title, "url": _narrowed(context, dict.fromkeys(names)) + anchor}


def _narrowed(context: Context, parameters: dict[str, str | None]) -> str:
    """The address of the list's first page with other filters; None takes one out."""
    return querystring(context, None, cursor=None, **parameters)


@register.inclusion_tag("parts/column_head.html", takes_context=True)
def column_head(context: Context, title: str, by: str, style: str = "") -> dict[str, Any]:
    """The head of a column, with a link that orders the list by it (``by``: the key of the sort) or turns that order
    around. Words alone where the page has no list with that order, as where an agent's page shows its last jobs."""
    head = getattr(context.get("listing"), "by_head", lambda _: None)(by)
    if head is None:
        return {"title": title, "style": style}
    key, descending = head
    return {
        "title": title,
        "style": style,
        "url": _narrowed(context, {"sort": key}),
        "order": None if descending is None else "descending" if descending else "ascending",
    }


@register.simple_tag
def icon(name: str) -> Picture:
    shape = f'<path d="{PATHS[name]}"/>'
    return Picture(f'<svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">{shape}</svg>')


@register.simple_tag
def status(job: Any) -> SafeString:
    """A job's status as icon and word, with its reason where there is one."""
    reason = job.get_status_reason_display() if job.status_reason else ""
    return format_html(
        '<span class="status {}" title="{}">{}{}</span>',
        job.status,
        reason,
        icon(STATUS[job.status]),
        job.stage,
    )


@register.simple_tag
def state(word: str, like: str) -> SafeString:
    """A word that looks like a job's status ``like``."""
    return format_html('<span class="status {}">{}{}</span>', like, icon(STATUS[like]), word)


@register.simple_tag
def spark(values: Sequence[float | None] | None) -> Picture:
    return svg.sparkline(values or ())


@register.simple_tag
def bar(value: Any, scale: Any) -> Picture:
    return svg.bar_around_zero(as_number(value) or 0.0, as_number(scale) or 0.0)


@register.simple_tag
def interval(difference: Any, scale: float = 0.5) -> Picture:
    """A difference (``mean``, ``low``, ``high``) with its interval around zero; ``scale`` fills a half."""
    label = f"{points(difference.mean)} points, {points(difference.low)} to {points(difference.high)}"
    return svg.whisker(difference.mean, difference.low, difference.high, scale, label=label)


@register.simple_tag
def job_url(job: Any) -> str:
    """The page of a job of any kind."""
    return job_page(job)


@register.simple_tag
def author(change: Any) -> str:
    """The author of a change of a playbook: a person, or a job with a link to its page."""
    if not change.job:
        return conditional_escape(change.by)
    return format_html('<a href="{}">{}</a>', job_url(change.job), change.by)


@register.simple_tag
def playbook_change_url(agent: Any, version: int) -> str:
    """The page of what a version of the agent's playbook changed: it beside the one before."""
    page = reverse("experiences:playbook_diff", args=[agent.pk])
    return f"{page}?a={max(version - 1, 1)}&b={version}"


@register.simple_tag
def changed_text(pieces: Iterable[Any]) -> SafeString:
    """A text with what went struck out, what came marked. Pieces have a ``kind`` (gone, new, same) and a ``text``."""
    return format_html_join("", "{}", ((_marked(piece.kind, piece.text),) for piece in pieces))


def _marked(kind: str, text: str) -> str:
    if kind == "gone":
        return format_html("<del>{}</del>", text)
    return format_html("<ins>{}</ins>", text) if kind == "new" else text


@register.filter
def gain_tone(verdict: Any) -> str:
    """ "good" or "bad" where the interval of a gain (``low`` to ``high``) leaves zero out, else nothing."""
    low, high = (as_number(_part(verdict, name)) for name in ("low", "high"))
    if low is not None and low > 0:
        return "good"
    return "bad" if high is not None and high < 0 else ""


def _part(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


@register.simple_tag
def step_icon(step: Mapping[str, Any]) -> Picture:
    """The kind of an agent's step, as a picture: an answer, a check, or the use of a tool."""
    kind = step.get("action", {}).get("type")
    return icon(kind if kind in ("answer", "verify") else "tool")


@register.filter
def step_outcome(step: Mapping[str, Any]) -> str:
    """ "answer", "ok" or "failed"."""
    if step.get("action", {}).get("type") == "answer":
        return "answer"
    return "ok" if step.get("result", {}).get("success") else "failed"


@register.simple_tag
def dots(group: Any, low: float, high: float) -> Picture:
    """The dots of a group of rollouts; ``low`` and ``high`` are the rewards at the ends of the colours."""
    return svg.dots(group.rewards, group.success, low=low, high=high, signal=group.has_signal)


@register.simple_tag
def outcome(row: Any) -> SafeString:
    """A trajectory's outcome, as icon and word."""
    if row.error:
        kind, mark, word = "bad", "alert", row.error.partition(":")[0] or "error"
    elif row.success:
        kind, mark, word = "good", "check", "succeeded"
    else:
        kind, mark, word = "", "cross", "cut off" if row.truncated else "failed"
    return format_html('<span class="outcome status {}">{}{}</span>', kind, icon(mark), word[:30])


@register.simple_tag
def fold(label: str, text: Any) -> SafeString:
    """A labelled text; a long one is folded with its beginning shown."""
    whole = text if isinstance(text, str) else json_text(text)
    kind = "text error" if label == "error" else "text"
    if len(whole) <= LONG and whole.count("\n") < LONG_LINES:
        return format_html('<div class="{}"><span>{}</span><pre>{}</pre></div>', kind, label, whole or "(empty)")
    head = whole[:LONG].partition("\n")[0][:160]
    size = f"{len(whole):,} characters"
    return format_html(
        '<div class="{}"><details><summary>{} ({}): {}…</summary><pre>{}</pre></details></div>',
        kind,
        label,
        size,
        head,
        whole,
    )


@register.simple_block_tag
def empty_state(content: str, title: str, *, label: str = "", url: str = "", primary: bool = False) -> str:
    """The text in place of an empty list: a title, between the tags the reason and the next step, and a button."""
    text = content if content.strip() else ""
    context = {"title": title, "text": text, "label": label, "url": url, "primary": primary}
    return render_to_string("parts/empty.html", context)


@register.simple_tag
def crumbs(*links: str, agent: Any = None, here: str = "") -> SafeString:
    """The pages above a page: ``links`` are titles, each followed by the name of its address. ``here``: the page."""
    above = [(reverse(name), title) for title, name in zip(links[::2], links[1::2], strict=True)]
    if agent is not None:
        above.append((reverse("agent", args=[agent.pk]), agent.name))
    way = format_html_join("\n", '<a href="{}">{}</a>', above)
    last = format_html("\n<span>{}</span>", here) if here else ""
    return format_html('<nav class="crumbs" aria-label="Breadcrumb">\n{}{}\n</nav>', way, last)


@register.simple_tag
def card_head(title: str) -> SafeString:
    return format_html("<header>\n<h2>{}</h2>\n</header>", title)


@register.simple_block_tag
def card(content: str, title: str) -> SafeString:
    return format_html('<section class="card">\n{}{}</section>', card_head(title), content)


@register.simple_tag(takes_context=True)
def post_button(context: Context, label: str, view: str, *args: Any, kind: str = "", sign: str = "") -> SafeString:
    """A button that posts to a page, in a form of its own. ``sign``: its icon."""
    return format_html(
        '<form method="post" action="{}">\n{}\n<button class="button{}">{}{}</button>\n</form>',
        reverse(view, args=args),
        CsrfTokenNode().render(context),
        f" {kind}" if kind else "",
        icon(sign) if sign else "",
        label,
    )


@register.filter(name="json")
def json_text(value: Any) -> str:
    """A value as indented JSON."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


@register.filter
def json_line(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()
