"""Decoys that redaction must keep: numbers, words and code that resemble personal data or secrets."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.support.privacy_values import HEX, ascii_name, card_digits, digits, first, iban, last, letters

PROSE = (
    "The keys to the flat are under the mat, as always.",
    "She passed the exam with a token effort and a lot of luck.",
    "It is an open secret that the ferry leaves late.",
    "Please check the numbers once more before the board meets at noon.",
    "We walked from the harbour up to the old mill and had lunch there.",
    "The report is longer than it needs to be, but the tables are useful.",
    "Nobody called, so the rehearsal went on until the lamps were out.",
    "Rain is expected in the north; the south stays dry until Thursday.",
    "The author thanks the editors for their patience with the second draft.",
    "Two of the three pumps were replaced, and the third will follow in spring.",
    "If the test fails again, look at the log first and at the cable afterwards.",
    "Most visitors come for the gardens and stay for the cake.",
    "The committee found no fault with the procedure and closed the case.",
    "There is no need to answer today; next week is early enough.",
    "A small queue formed at the door, mostly students with bicycles.",
    "He keeps a diary in which every bird of the valley has its page.",
    "Das Treffen wurde verschoben, weil der Saal nicht geheizt war.",
    "Die Ergebnisse liegen vor und werden am Freitag besprochen.",
    "Le train était en retard, mais le paysage valait le voyage.",
    "La reunión termina a las seis y después hay una cena.",
    "Il museo chiude presto d'inverno; conviene arrivare la mattina.",
    "O relatório foi aceito sem mudanças pela comissão.",
    "Поезд пришёл вовремя, и все были довольны.",
    "会议改到下周举行，请大家注意。",
)


def prose(rng: Random) -> str:
    """Two to five sentences in which nothing is to be found."""
    return " ".join(rng.choices(PROSE, k=rng.randrange(2, 6)))


def version(rng: Random) -> str:
    a, b, c, d = (rng.randrange(30) for _ in range(4))
    return rng.choice(
        [
            f"version {a}.{b}.{c}.{d}",
            f"v{a}.{b}.{c}",
            f"v{a}.{b}.{c}.{d}",
            f"{a}.{b}.{c}",
            f"{a}.{b}.{c}-rc{d}",
            f"pkg=={a}.{b}.{c}.{d}",
            f"Chrome/{a + 90}.0.{b}.{c}",
            f"build {a}.{b}.{c}.{d}",
            f"lodash@{a}.{b}.{c}",
        ]
    )


def isbn(rng: Random) -> str:
    body = "978" + digits(rng, 9)
    check = -sum(int(sign) * (3 if i % 2 else 1) for i, sign in enumerate(body)) % 10
    full = f"{body}{check}"
    return rng.choice(
        [
            full,
            f"{full[:3]}-{full[3]}-{full[4:7]}-{full[7:12]}-{full[12]}",
            f"{full[:3]} {full[3]} {full[4:8]} {full[8:12]} {full[12]}",
        ]
    )


def order(rng: Random) -> str:
    return rng.choice(
        [
            f"#{digits(rng, 8)}",
            f"{digits(rng, 3)}-{digits(rng, 7)}-{digits(rng, 7)}",
            f"ORD-{digits(rng, 4)}-{digits(rng, 6)}",
            f"PO{digits(rng, 10)}",
            f"1Z{letters(rng, 6, 'ABCDEFGHJKLM')}{digits(rng, 10)}",
            digits(rng, 9),
            digits(rng, 10),
            f"INV-20{digits(rng, 2)}-{digits(rng, 5)}",
        ]
    )


def checksum(rng: Random) -> str:
    return letters(rng, rng.choice([32, 40, 64]), HEX)


def uuid(rng: Random) -> str:
    return "-".join(letters(rng, n, HEX) for n in (8, 4, 4, 4, 12))


def moment(rng: Random) -> str:
    y, mo, d, h, mi, s = (
        2000 + rng.randrange(40),
        rng.randrange(1, 13),
        rng.randrange(1, 29),
        rng.randrange(24),
        rng.randrange(60),
        rng.randrange(60),
    )
    return rng.choice(
        [
            f"{y}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z",
            f"{y}-{mo:02}-{d:02} {h:02}:{mi:02}:{s:02},{digits(rng, 3)}",
            f"{1_600_000_000 + rng.randrange(10**8)}",
            f"{1_600_000_000_000 + rng.randrange(10**11)}",
            f"{d:02}/{mo:02}/{y}",
            f"{d}.{mo}.{y}",
            f"{y}{mo:02}{d:02}{h:02}{mi:02}{s:02}",
            f"{h:02}:{mi:02}:{s:02}+0{rng.randrange(10)}:00",
        ]
    )


def price(rng: Random) -> str:
    return rng.choice(
        [
            f"${rng.randrange(1, 10**6):,}.{digits(rng, 2)}",
            f"{rng.randrange(1, 10**4)},{digits(rng, 2)} €",
            f"USD {rng.randrange(10**7):,}",
            f"£{rng.randrange(1000)}",
            f"{rng.randrange(1, 999)} {digits(rng, 3)} {digits(rng, 3)} Kč",
        ]
    )


def maths(rng: Random) -> str:
    a, b, c = (rng.randrange(2, 10 ** rng.randrange(1, 8)) for _ in range(3))
    return rng.choice(
        [
            f"{a} + {b} - {c}",
            f"{a}+{b}*{c}",
            f"{a} +{b} -{c}",
            f"({a} - {b}) / {c}",
            f"{a % 1000}-{b % 1000}={a % 1000 - b % 1000}",
            f"x = {a}y + {b}",
            f"{a}, {b}, {c}",
            f"{a}/{b}",
            f"{a}.{b} × {c}.{a}",
            f"2^{a % 60} = {2 ** (a % 60)}",
            f"[{a}, {b}, {c}, {a + b}]",
        ]
    )


def place(rng: Random) -> str:
    lat, lon = rng.uniform(-90, 90), rng.uniform(-180, 180)
    return rng.choice(
        [
            f"{lat:.6f}, {lon:.6f}",
            f"{lat:+.4f}, {lon:+.4f}",
            f"{abs(lat):.5f}° N {abs(lon):.5f}° W",
            f"({lat:.2f} {lon:.2f})",
        ]
    )


def near_card(rng: Random) -> str:
    """Sixteen digits in groups whose check digit is wrong."""
    number = card_digits(rng, "4", 16)
    wrong = number[:-1] + str((int(number[-1]) + rng.randrange(1, 10)) % 10)
    return rng.choice(
        [
            wrong,
            " ".join(wrong[i : i + 4] for i in range(0, 16, 4)),
            "-".join(wrong[i : i + 4] for i in range(0, 16, 4)),
        ]
    )


def near_ssn(rng: Random) -> str:
    return rng.choice(
        [
            f"000-{digits(rng, 2)}-{digits(rng, 4)}",
            f"666-12-{digits(rng, 4)}",
            f"9{digits(rng, 2)}-45-{digits(rng, 4)}",
            f"{rng.randrange(100, 600)}-00-{digits(rng, 4)}",
            f"{rng.randrange(100, 600)}-12-0000",
        ]
    )


def near_iban(rng: Random) -> str:
    """The check digits are one off, which no account's can be."""
    code = re.sub("[ -]", "", iban(rng))
    return f"{code[:2]}{(int(code[2:4]) + 1) % 100:02}{code[4:]}"


def impersonal_address(rng: Random) -> str:
    """Addresses that identify no person's device, and texts that resemble addresses."""
    return rng.choice(
        [
            "127.0.0.1",
            "0.0.0.0",
            "255.255.255.0",
            "::1",
            "999.12.300.4",
            "1.2.3.4.5",
            "localhost:8080",
            f"00:1a:{digits(rng, 2)}:3c:4d:5e",
            "x[1::2]",
            "std::vector<int>",
            "ns::abc::def",
            "256.1.1.1",
            "§ 3.2.1.4",
            "section 2.4.1.3",
        ]
    )


def harmless_code(rng: Random) -> str:
    return rng.choice(
        [
            'password: str = ""',
            "max_tokens=4096",
            "token: 128",
            "password = getpass()",
            'api_key=os.environ["KEY"]',
            "tokenizer = load()",
            "secret=None",
            "password=config.password",
            "api_key: Optional[str]",
            "@pytest.mark.slow",
            "icon@2x.png",
            "git@github.com:org/repo.git",
            "loss = a@b.T",
            "sk-container-id-1",
            "class='pk-label-main-button'",
            "PASSWORD=${DB_PASSWORD}",
            "Authorization: Bearer $TOKEN",
            "token_count = 512",
            "secretary: Alice",
            "num_tokens: 20480000",
            "<password>***</password>",
            "password_min_length = 12",
            "tokens_per_second: 10432.55",
        ]
    )


def host(rng: Random) -> str:
    return rng.choice(["db", "db.internal", "cache-01", "mq.example.net", "localhost", "redis"])


def number(rng: Random) -> str:
    return str(rng.randrange(10 ** rng.randrange(1, 12)))


MAY_STAY: tuple[Callable[[Random], str], ...] = (
    first,
    last,
    ascii_name,
    version,
    isbn,
    order,
    checksum,
    uuid,
    moment,
    price,
    maths,
    place,
    near_card,
    near_ssn,
    near_iban,
    impersonal_address,
    harmless_code,
    host,
    number,
)
