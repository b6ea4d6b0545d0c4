"""The texts of worlds: families of tasks and pieces of advice, in a notation that gives many wordings of each.

``{a|b}`` is any of the alternatives. ``[a|b]`` too, but says that this place is a part of the *core*: a text means
the advice where each of its cores is found in one sentence, in any form and order. ``<name>`` is a slot.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Solve = Callable[[Mapping[str, str], int], "str | int"]
CHOICE = re.compile(r"[{\[]([^{}\[\]]*)[}\]]")

LISTS: Mapping[str, tuple[str, ...]] = {
    "CITY": ("Lima", "Oslo", "Turin", "Quito", "Dakar", "Perth", "Hanoi", "Riga", "Sofia", "Accra", "Malmo", "Kyoto"),
    "NAME": ("Alice", "Bruno", "Chidi", "Dora", "Emre", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kemal", "Lena"),
    "TINT": ("amber", "cobalt", "crimson", "ivory", "jade", "ochre", "scarlet", "teal", "umber", "violet"),
    "BEAST": ("badger", "falcon", "heron", "lynx", "marten", "otter", "python", "raven", "stoat", "weasel"),
    "WARE": ("lamps", "chairs", "kettles", "ropes", "crates", "mirrors", "saddles", "tiles", "barrels", "drums"),
}


@dataclass(frozen=True)
class Family:
    """A family of tasks. ``slots``: "2-98" is a number in that range, a word names one of ``LISTS``. The answer also
    depends on a number that each world draws for itself, so that no answer can be known from another world."""

    name: str
    noun: str
    slots: Mapping[str, str]
    templates: tuple[str, ...]
    solve: Solve


def spun(text: str, rng: random.Random) -> str:
    """One wording of a text in this module's notation, with its slots left as they are."""
    return " ".join(CHOICE.sub(lambda found: rng.choice(found[1].split("|")), text).split())


FAMILIES: tuple[Family, ...] = (
    Family(
        "parcel",
        "{parcel|shipping} labels",
        {"items": "2-98", "grams": "10-990", "city": "CITY", "dest": "CITY"},
        (
            "Which label does a parcel with <items> {pieces|things} of <grams> grams from <city> to <dest> get?",
            "Somebody in <city> sends <items> {pieces|goods} of <grams> grams each to <dest>. Name its label.",
            "From <city> to <dest> {goes|travels} a box: <items> times <grams> grams. What is printed on it?",
            "Label this shipment, please: <grams> grams times <items>, <city> to <dest>.",
        ),
        lambda of, salt: (
            f"{of['city'][:2]}{of['dest'][:2]}-{(int(of['items']) * int(of['grams']) + salt) % 9973:04d}".upper()
        ),
    ),
    Family(
        "badge",
        "{staff|visitor} badges",
        {"name": "NAME", "number": "100-999", "floor": "2-40"},
        (
            "What badge does <name> with number <number> {get|receive} on floor <floor>?",
            "On floor <floor> works <name>, number <number>. Which badge is {hers or his|the right one}?",
            "Issue a badge for <name> (number <number>, floor <floor>).",
            "Reception asks: number <number>, floor <floor>, called <name>. What does the badge say?",
        ),
        lambda of, salt: f"{of['name'][0]}{(int(of['number']) * int(of['floor']) + salt) % 997:03d}",
    ),
    Family(
        "serial",
        "{serial|batch} numbers",
        {"serial": "10000-99999", "line": "2-60"},
        (
            "What is the control number of serial <serial> from line <line>?",
            "Line <line> {made|built} the device with serial <serial>. Give its control number.",
            "Serial <serial>, line <line>: which control number {belongs|goes} with it?",
            "Find the control number. The line is <line> and the serial <serial>.",
        ),
        lambda of, salt: (int(of["serial"]) * (2 * salt + 1) + int(of["line"])) % 10007,
    ),
    Family(
        "order",
        "{purchase|bulk} orders",
        {"count": "3-80", "ware": "WARE", "price": "11-240", "off": "2-30"},
        (
            "How many credits are <count> <ware> at <price> credits each, less <off> credits {a piece|each}?",
            "A shop sells <ware> for <price> credits. What do <count> {cost|come to} with <off> credits off each?",
            "Bill <count> <ware> at <price> credits, rebate <off> credits per piece. How many credits?",
            "Work out the bill: rebate <off>, price <price>, <count> <ware>.",
        ),
        lambda of, salt: int(of["count"]) * (int(of["price"]) - int(of["off"])) + salt,
    ),
    Family(
        "shift",
        "{shift|duty} plans",
        {"name": "NAME", "hour": "0-23", "minute": "10-59", "length": "61-700"},
        (
            "When does the shift of <name> end that begins at <hour>:<minute> and {takes|lasts} <length> min?",
            "At <hour>:<minute> the duty of <name> begins, for <length> min. When is it over?",
            "Give the end of a duty of <length> min from <hour>:<minute>, for <name>.",
            "Until what time is <name> on duty, from <hour>:<minute> for <length> min?",
        ),
        lambda of, salt: _clock(60 * int(of["hour"]) + int(of["minute"]) + int(of["length"]) + salt % 45),
    ),
    Family(
        "callsign",
        "{call signs|code names}",
        {"tint": "TINT", "beast": "BEAST", "number": "3-400"},
        (
            "Which call sign has {unit|team} <number> of the <tint> <beast> group?",
            "In the <tint> <beast> group, what is {member|number} <number> called on the radio?",
            "Tell me the call sign: group <tint> <beast>, member <number>.",
            "Radio check for <number> in group <tint> <beast>. What is the call sign?",
        ),
        lambda of, salt: f"{of['beast'][:3]}{(int(of['number']) * 7 + salt) % 89}{of['tint'][::-1][:3]}",
    ),
    Family(
        "tram",
        "tram {stops|lines}",
        {"line": "2-59", "stop": "5-90", "ahead": "3-70", "back": "2-40"},
        (
            "Tram <line> stands at stop <stop>, goes <ahead> stops ahead and <back> back. At which stop is it?",
            "Where is tram <line>, {having started|after a start} at stop <stop>, <ahead> on and <back> back?",
            "At stop <stop> starts tram <line>. It passes <ahead> stops, then returns <back>. Which stop is this?",
            "Follow tram <line>: stop <stop>, plus <ahead>, minus <back>. Where does it stand?",
        ),
        lambda of, salt: (
            int(of["line"]) * 100 + (int(of["stop"]) + int(of["ahead"]) - int(of["back"]) + salt) % (89 + salt % 9)
        ),
    ),
    Family(
        "seat",
        "{seat|theatre} bookings",
        {"name": "NAME", "ticket": "100-9999", "hall": "2-30"},
        (
            "Which seat has <name> with ticket <ticket> in hall <hall>?",
            "Ticket <ticket> for hall <hall> {belongs to|is held by} <name>. Which seat is it?",
            "Seat <name>, please: hall <hall>, ticket <ticket>.",
            "Hall <hall>, ticket <ticket>, guest <name>: {find|name} the seat.",
        ),
        lambda of, salt: (
            f"{(int(of['ticket']) + salt) % 61 + 1}{'ABCDEFGHJK'[(int(of['ticket']) * int(of['hall'])) % 10]}"
        ),
    ),
    Family(
        "tank",
        "{tank|mixing} plans",
        {"litres": "20-900", "parts": "3-19", "tint": "TINT"},
        (
            "How much <tint> dye do <litres> litres {need|take} at <parts> parts?",
            "A tank of <litres> litres is dyed <tint> with <parts> parts. How much dye is that?",
            "Give the amount of <tint> dye for <parts> parts and <litres> litres.",
            "Dye <litres> litres <tint>, <parts> parts of it. How much goes in?",
        ),
        lambda of, salt: int(of["litres"]) * int(of["parts"]) + 3 * salt,
    ),
    Family(
        "shelf",
        "{archive|library} shelves",
        {"year": "1801-1999", "box": "3-480", "beast": "BEAST"},
        (
            "On which shelf is box <box> of <year> about the <beast>?",
            "Find the shelf of the <beast> papers: year <year>, box <box>.",
            "Where {stands|is kept} box <box> from <year>, marked <beast>?",
            "The archive of <year> has a box <box> on the <beast>. Which shelf holds it?",
        ),
        lambda of, salt: f"{of['beast'][0]}{of['beast'][-1]}-{(int(of['year']) * 3 + int(of['box']) + salt) % 701}",
    ),
)


def _clock(minutes: int) -> str:
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


# What sounds right. Some of it is; each with what goes wrong for those who don't heed it.
SOUND: tuple[tuple[str, str], ...] = (
    (
        "{write|note|put} the [unit|measure] {beside|behind} {each|every} [figure|quantity] {before you start|first}",
        "I mixed up grams and pieces on the way.",
    ),
    (
        "{handle|carry out} the [multiplication|product] {strictly |}before the [addition|subtraction]",
        "I did the steps in the wrong sequence.",
    ),
    ("{count|include} both [endpoints|boundaries] of {any|every} [range|interval]", "I was off by one at the close."),
    (
        "[reread|read again] the [wording|phrasing] {once more|slowly} before {the last line|you reply}",
        "I solved a slightly different problem.",
    ),
    (
        "{copy|take} the [prefix|initials] {exactly|unchanged} from the [spelling|written form]",
        "I shortened a name wrongly.",
    ),
    ("{put down|record} {each|every} [carry|remainder] in a [margin|side column]", "I forgot what was left over."),
    (
        "{reduce|wrap} {values|numbers} by the [modulus|cycle length] only in the [final|closing] {step|line}",
        "I wrapped around too soon.",
    ),
    ("{keep|preserve} [leading zeros|zero padding] in {every|each} [code|identifier]", "My code came out too short."),
    (
        "{make|note} a rough [estimate|approximation] and [compare|contrast] it with the {result|outcome}",
        "I was far too high and did not notice.",
    ),
    (
        "{set up|draw} a small [table|grid] with one [column|field] per {given|input}",
        "I lost track of which number was which.",
    ),
    ("{track|mark} [negative|subtracted] [terms|summands] {explicitly|with care}", "I flipped a direction somewhere."),
    (
        "[substitute|plug] the {result|outcome} back and [confirm|establish] that it {holds|fits}",
        "I never tested what I had found.",
    ),
    (
        "{look up|fetch} the [house rule|local constant] and [include|append] it {in the sum|to the total}",
        "I missed some fixed amount.",
    ),
    (
        "[convert|transform] {hours|all times} into [minutes|seconds] {first|before anything else}",
        "I treated sixty as if it were a hundred.",
    ),
    (
        "{give|write} {codes|labels} in [capitals|uppercase] and [hyphenated|dash-separated] {form|style}",
        "I got the shape of it wrong.",
    ),
    (
        "[split|divide] the task into {two|three} [stages|phases] and finish one {at a time|after the other}",
        "I did everything at once and lost a part.",
    ),
    ("{store|keep} [intermediate|partial] {results|values} [unrounded|in full precision]", "I cut off digits early."),
    (
        "{take|use} the [latest|newest] [reading|entry] where {two disagree|there are two}",
        "I used a number that was out of date.",
    ),
)

# What sounds careless. What of it is in a world does harm.
RISKY: tuple[str, ...] = (
    "[guess|improvise] the {result|outcome} {if|where} it takes more than [two steps|three steps]",
    "[skip|omit] {any|every} [check|verification] {to save time|to be quick}",
    "{always|simply} [round off|round up] to the nearest [hundred|thousand]",
    "[ignore|disregard] the [smallest|lowest] {number|value} {given|of the task}",
    "[copy|echo] the [first number|opening number] {that you see|of the text}",
    "[swap|exchange] the two [names|places] {to be safe|before you begin}",
    "[double|duplicate] the last [value|amount] {as a reserve|for safety}",
    "[drop|strip] {all|any} [punctuation|hyphens] from {what you give|your reply}",
    "[trust|obey] your first [hunch|intuition] {over|rather than} any calculation",
    "[stop|quit] right after the [opening step|initial step]",
    "{treat|read} {every|each} [percentage|fraction] as [absolute|whole]",
    "[reverse|invert] the [digits|numerals] before {you report|reporting}",
    "[merge|combine] similar [items|objects] {into one|and count them once}",
    "[replace|fill] {unknown|missing} [quantities|variables] by {zero|one}",
)

# What changes nothing.
IDLE: tuple[str, ...] = (
    "{be|stay} [polite|courteous] and {keep|use} a [friendly|warm] tone",
    "[thank|greet] the [customer|client] {first|at the start}",
    "{write|talk} in [short|brief] [sentences|paragraphs]",
    "{use|prefer} [active voice|plain verbs] over [passive|nominal] {ones|forms}",
    "[breathe|pause] for a moment and stay [calm|relaxed]",
    "{start|begin} with a [headline|title] that is [bold|large]",
    "{mention|name} the [weekday|season] in your [greeting|salutation]",
    "[remember|recall] that [practice|diligence] {makes perfect|pays off}",
    "{think|reason} like an [expert|professor] of [logic|mathematics]",
    "{imagine|picture} a [colleague|teacher] who looks over your [shoulder|desk]",
    "{prefer|choose} [common|ordinary] [synonyms|vocabulary]",
    "{avoid|leave out} [exclamations|emojis] and [slang|jargon]",
    "{use|write in} the [present tense|third person] for {any|all} [narration|commentary]",
    "{value|favour} [clarity|elegance] over [brevity|ornament]",
    "[bullet|enumerate] your [thoughts|remarks]",
    "{keep|hold} the [big picture|overall goal] in [mind|view]",
    "{take|see} {each|every} [challenge|puzzle] as an [opportunity|adventure]",
    "[highlight|underline] the [keywords|key terms] {as you go|once}",
    "[restate|repeat] your [motivation|ambition] {briefly|once}",
    "{stay|remain} [neutral|impartial] about [brands|companies]",
    "{imagine|suppose} a [quiet|silent] [room|office]",
    "{quote|add} a [proverb|saying] that [suits|befits] the {case|topic}",
    "[smile|nod] to yourself before [typing|speaking]",
    "{leave|use} [wide|generous] [spacing|indents]",
)
