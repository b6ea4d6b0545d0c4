"""Values that must be redacted, with check digits computed here: a mistake of the detectors can't hide in them."""

from __future__ import annotations

import base64
import json
import re
import string
from collections.abc import Callable
from random import Random

FIRST = [
    "anna",
    "ben",
    "carla",
    "dmitri",
    "elif",
    "farid",
    "grace",
    "hiro",
    "inês",
    "jörg",
    "kofi",
    "lucía",
    "marek",
    "nadia",
    "olu",
    "priya",
    "quentin",
    "rosa",
    "sven",
    "tuğba",
]
LAST = [
    "almeida",
    "becker",
    "cohen",
    "dubois",
    "evans",
    "fischer",
    "garcía",
    "haddad",
    "ivanova",
    "jansen",
    "kowalski",
    "lopez",
    "müller",
    "nguyen",
]
PLAIN_HOSTS = [
    "example.com",
    "example.org",
    "mail.example.net",
    "corp.example.co.uk",
    "gmx.de",
    "web.de",
    "outlook.com",
    "firma-nord.de",
]
IDN_HOSTS = ["müller-söhne.de", "пример.рф", "exämple.org", "例子.公司", "xn--mller-kva.de"]


def digits(rng: Random, n: int) -> str:
    return "".join(rng.choices(string.digits, k=n))


def letters(rng: Random, n: int, of: str = string.ascii_letters + string.digits) -> str:
    return "".join(rng.choices(of, k=n))


def first(rng: Random) -> str:
    return rng.choice(FIRST).capitalize()


def last(rng: Random) -> str:
    return rng.choice(LAST).capitalize()


def ascii_name(rng: Random) -> str:
    return rng.choice([name for name in FIRST + LAST if name.isascii()])


def email(rng: Random) -> str:
    a, b = ascii_name(rng), ascii_name(rng)
    local = rng.choice(
        [f"{a}.{b}", f"{a}_{b}", f"{a[0]}{b}{rng.randrange(100)}", f"{a}+{b}", f"{b}-{a}", a, f"{a}{digits(rng, 4)}"]
    )
    host = rng.choice(PLAIN_HOSTS)
    drawn = rng.random()
    if drawn < 0.08:
        return f"{rng.choice(FIRST)}.{rng.choice(LAST)}@{rng.choice(IDN_HOSTS)}"
    if drawn < 0.12:
        return f"{local}@{host}".upper()
    return f"{local}@{host}"


def spelt_email(rng: Random) -> str:
    a, b, host = ascii_name(rng), ascii_name(rng), rng.choice(["example.com", "example.org", "gmx.de", "web.de"])
    name, end = host.split(".")
    return rng.choice(
        [
            f"{a} (at) {name} (dot) {end}",
            f"{a}.{b} [at] {name} [dot] {end}",
            f"{a}[at]{name}[dot]{end}",
            f"{a}.{b}(at){host}",
            f"{a} AT {name} DOT {end}".replace(" AT ", " (AT) ").replace(" DOT ", " (DOT) "),
            f"{a} at {name} dot {end}",
            f"{a} {{at}} {name} {{dot}} {end}",
        ]
    )


def american(rng: Random) -> str:
    a = rng.choice("23456789") + digits(rng, 2)
    b = rng.choice("23456789") + digits(rng, 2)
    c = digits(rng, 4)
    form = rng.choice(
        [
            "({a}) {b}-{c}",
            "{a}-{b}-{c}",
            "{a}.{b}.{c}",
            "1-{a}-{b}-{c}",
            "+1 ({a}) {b}-{c}",
            "+1-{a}-{b}-{c}",
            "({a}){b}-{c}",
            "+1{a}{b}{c}",
            "1 ({a}) {b}-{c}",
            "{a} {b}-{c}",
        ]
    )
    number = form.format(a=a, b=b, c=c)
    return number + rng.choice(
        ["", "", "", "", f" ext. {digits(rng, 3)}", f" x{digits(rng, 4)}", f" extension {digits(rng, 2)}"]
    )


_ABROAD = re.findall(
    r"[^|]+",
    "+44 20 #### ####|+44 7### ######|+49 30 #######|+49 151 ########|+49 (0)89 ######|+33 6 ## ## ## ##|"
    "+33 1 ## ## ## ##|+34 6## ### ###|+39 06 #### ####|+31 6 ########|+41 44 ### ## ##|+43 1 #######|"
    "+46 70-### ## ##|+47 ### ## ###|+48 ### ### ###|+351 9## ### ###|+353 1 ### ####|+358 40 #######|"
    "+420 ### ### ###|+55 11 9####-####|+52 55 #### ####|+7 9## ###-##-##|+81 3-####-####|+82 10-####-####|"
    "+86 138 #### ####|+91 98### #####|+61 4## ### ###|+64 21 ### ####|+27 82 ### ####|+234 803 ### ####|"
    "+254 7## ######|+971 50 ### ####|+972 54-###-####|+90 532 ### ## ##|+380 67 ### ## ##|+4915########|"
    "+447#########|+336########|+919#########|0049 30 #######|0044 20 #### ####|0033 6 ## ## ## ##|"
    "+49-89-#######|+44.20.####.####|+49/30/#######",
)


def abroad(rng: Random) -> str:
    return re.sub("#", lambda _: rng.choice("123456789"), rng.choice(_ABROAD))


def phone(rng: Random) -> str:
    return american(rng) if rng.random() < 0.45 else abroad(rng)


def announced_phone(rng: Random) -> str:
    """National forms, which only the word before them makes a telephone number."""
    return re.sub(
        "#",
        lambda _: rng.choice("23456789"),
        rng.choice(
            [
                "030 #######",
                "0151 ########",
                "06 ## ## ## ##",
                "020 #### ####",
                "### ####",
                "###-####",
                "##########",
                "089/######",
                "(030) #######",
                "91# ## ## ##",
            ]
        ),
    )


def ssn(rng: Random) -> str:
    area = rng.choice((rng.randrange(1, 666), rng.randrange(667, 900)))
    return f"{area:03}-{rng.randrange(1, 100):02}-{rng.randrange(1, 10_000):04}"


def _luhn_digit(body: str) -> str:
    total = 0
    for i, sign in enumerate(reversed(body)):
        n = int(sign) * (2 if i % 2 == 0 else 1)
        total += n // 10 + n % 10
    return str(-total % 10)


def card_digits(rng: Random, prefix: str, size: int) -> str:
    body = prefix + digits(rng, size - len(prefix) - 1)
    return body + _luhn_digit(body)


def card(rng: Random) -> str:
    prefix, size, groups = rng.choice(
        [
            ("4", 16, (4, 4, 4, 4)),
            ("4", 16, (4, 4, 4, 4)),
            ("51", 16, (4, 4, 4, 4)),
            ("55", 16, (4, 4, 4, 4)),
            ("2300", 16, (4, 4, 4, 4)),
            ("34", 15, (4, 6, 5)),
            ("37", 15, (4, 6, 5)),
            ("6011", 16, (4, 4, 4, 4)),
            ("3569", 16, (4, 4, 4, 4)),
            ("36", 14, (4, 6, 4)),
            ("62", 19, (4, 4, 4, 4, 3)),
            ("65", 16, (4, 4, 4, 4)),
        ]
    )
    number = card_digits(rng, prefix, size)
    mark = rng.choice(["", " ", "-", " "])
    parts, at = [], 0
    for group in groups:
        parts.append(number[at : at + group])
        at += group
    return mark.join(parts)


# Lengths of digits (n), letters (a) and either (c), by country.
_ACCOUNTS = dict(
    re.findall(
        r"(\w\w)=(\w+)",
        "DE=n18 FR=n10c11n2 GB=a4n14 NL=a4n10 ES=n20 IT=a1n10c12 BE=n12 AT=n16 CH=n5c12 PL=n24 SE=n20 NO=n11 "
        "DK=n14 FI=n14 PT=n21 IE=a4n14 LU=n3c13 CZ=n20 GR=n7c16 TR=n5n1c16 SA=n2c18 AE=n19 BR=n23a1c1 MT=a4n5c18",
    )
)


def iban(rng: Random) -> str:
    country = rng.choice(list(_ACCOUNTS))
    signs = {"n": string.digits, "a": string.ascii_uppercase, "c": string.ascii_uppercase + string.digits}
    account = "".join(
        letters(rng, int(size), signs[kind]) for kind, size in re.findall(r"([nac])(\d+)", _ACCOUNTS[country])
    )
    remainder = 0
    for sign in account + country + "00":
        for digit in str(int(sign, 36)):
            remainder = (remainder * 10 + int(digit)) % 97
    code = f"{country}{98 - remainder:02}{account}"
    return rng.choice(
        [
            code,
            " ".join(code[i : i + 4] for i in range(0, len(code), 4)),
            "-".join(code[i : i + 4] for i in range(0, len(code), 4)),
        ]
    )


def ipv4(rng: Random) -> str:
    first = rng.choice([10, 172, 192, 203, 8, 45, 91, 104, 185])
    return f"{first}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}"


def ipv6(rng: Random) -> str:
    groups = [f"{rng.randrange(0x1000, 0x10000):x}" for _ in range(8)]
    full = ":".join(["2001", "db8", *groups[2:]])
    return rng.choice(
        [
            full,
            f"2001:db8::{groups[3]}",
            f"fe80::{groups[1]}:{groups[2]}",
            f"2a02:{groups[1]}:{groups[2]}::1",
            f"fd00::{groups[4]}:5",
            f"::ffff:{ipv4(rng)}",
            full.upper(),
        ]
    )


def ip(rng: Random) -> str:
    return ipv6(rng) if rng.random() < 0.3 else ipv4(rng)


HEX = "0123456789abcdef"


def api_key(rng: Random) -> str:
    url_safe = string.ascii_letters + string.digits + "-_"
    return rng.choice(
        [
            lambda: "sk-" + letters(rng, 48),
            lambda: "sk-proj-" + letters(rng, 70, url_safe) + letters(rng, 20),
            lambda: "sk-ant-api03-" + letters(rng, 50) + "-" + letters(rng, 30),
            lambda: "sk-or-v1-" + letters(rng, 64, HEX),
            lambda: "AKIA" + letters(rng, 16, string.ascii_uppercase + "234567"),
            lambda: "ghp_" + letters(rng, 36),
            lambda: "github_pat_" + letters(rng, 22) + "_" + letters(rng, 59),
            lambda: f"xoxb-{digits(rng, 12)}-{digits(rng, 12)}-{letters(rng, 24)}",
            lambda: "AIza" + letters(rng, 35, url_safe),
            lambda: rng.choice(["sk_live_", "sk_test_", "rk_live_"]) + letters(rng, 24),
            lambda: "pk-" + letters(rng, 32),
            lambda: "hf_" + letters(rng, 34),
            lambda: "glpat-" + letters(rng, 20),
            lambda: "npm_" + letters(rng, 36),
            lambda: "gsk_" + letters(rng, 52),
        ]
    )()


def assigned(rng: Random) -> str:
    """A secret that only its name gives away."""
    return rng.choice(
        [
            letters(rng, 32, HEX),
            letters(rng, 24),
            letters(rng, 40, string.ascii_letters + string.digits + "/+"),
            letters(rng, 20) + "==",
        ]
    )


def pem(rng: Random) -> str:
    name = rng.choice(["RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    body = "\n".join(letters(rng, 64, string.ascii_letters + string.digits + "+/") for _ in range(rng.randrange(2, 9)))
    return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----"


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def jwt(rng: Random) -> str:
    header = {"alg": rng.choice(["HS256", "RS256", "ES256", "none"]), "typ": "JWT"}
    claims = {"sub": digits(rng, 10), "name": last(rng), "iat": 1_700_000_000 + rng.randrange(10**7)}
    return f"{_part(header)}.{_part(claims)}.{letters(rng, 43, string.ascii_letters + string.digits + '-_')}"


def password(rng: Random) -> str:
    word = ascii_name(rng)
    return rng.choice(
        [
            f"{word.capitalize()}{digits(rng, 4)}!",
            letters(rng, 12),
            f"{word}-{digits(rng, 3)}-{ascii_name(rng)}",
            f"P4ss{word}$",
            f"{letters(rng, 8)}#{digits(rng, 2)}",
            f"{word}{digits(rng, 2)}",
        ]
    )


def url_password(rng: Random) -> str:
    return rng.choice(
        [
            letters(rng, 10),
            f"{ascii_name(rng)}{digits(rng, 3)}",
            f"{letters(rng, 6)}%21{digits(rng, 2)}",
            letters(rng, 20, string.ascii_letters + string.digits + "-_.~!$"),
        ]
    )


MUST_GO: dict[str, tuple[str, Callable[[Random], str]]] = {
    "email": ("email", email),
    "spelt_email": ("email", spelt_email),
    "phone": ("phone", phone),
    "announced_phone": ("phone", announced_phone),
    "ssn": ("ssn", ssn),
    "card": ("card", card),
    "iban": ("iban", iban),
    "ip": ("ip", ip),
    "ipv4": ("ip", ipv4),
    "ipv6": ("ip", ipv6),
    "api_key": ("api key", api_key),
    "assigned": ("api key", assigned),
    "pem": ("api key", pem),
    "jwt": ("jwt", jwt),
    "password": ("password", password),
    "url_password": ("password", url_password),
}
