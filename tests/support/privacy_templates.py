"""The wordings of the labelled corpus: chat, mail, logs, JSON, code, tables, several languages.

A slot in braces is filled by the value of that name; DEVELOPED was looked at while the detectors were written, APART
was not.
"""

from __future__ import annotations

DEVELOPED: tuple[str, ...] = (
    # chat and mail
    "Hi, this is {first}. You can reach me at {email} or on {phone}. Best, {first}",
    "Dear {first},\n\nplease send the invoice {order} to {email} by {moment}. It is {price}.\n\nRegards\n{first}",
    "user: my SSN is {ssn} and my card number is {card}, can you book it?\nassistant: Order {order}, {price}.",
    "From: {first} {last} <{email}>\nTo: {email}\nDate: {moment}\nSubject: Re: order {order}\n\nCall me: {phone}",
    "Call me at {announced_phone} tomorrow, not before {moment}.",
    "Tel.: {announced_phone}, Fax: {announced_phone}",
    "write to {spelt_email} if it fails",
    "My password is {password}, please don't tell {first}.",
    # logs
    '{ipv4} - - [{moment}] "GET /index.html HTTP/1.1" 200 {number} "-" "{version}"',
    "{moment} WARN auth: login failed for {email} from {ip} ({number} attempts)",
    "{moment} INFO connecting to postgres://app:{url_password}@{host}:5432/main",
    "{moment} DEBUG request id {uuid} took {number} ms, sha {checksum}",
    "peer {ipv6} closed the connection after {number} bytes; listening on {impersonal_address}",
    # JSON, YAML, environment
    '{"user": "{first}", "email": "{email}", "phone": "{phone}", "id": "{uuid}", "created": "{moment}"}',
    '{"api_key": "{assigned}", "model": "m-{number}", "max_tokens": 4096}',
    '{"password": "{password}", "remember": true, "version": "{version}"}',
    "OPENAI_API_KEY={api_key}\nDB_PASSWORD={password}\nDEBUG=1\nRELEASE={version}",
    "database:\n  host: {host}\n  password: {password}\n  pool: {number}\n",
    "customer,iban,amount\n{last},{iban},{price}\n{last},{iban},{price}\n",
    # code
    'client = OpenAI(api_key="{api_key}")\nresult = client.chat(max_tokens=4096)  # {harmless_code}',
    "curl -H 'Authorization: Bearer {jwt}' https://{host}/v1/items?id={number}",
    "def connect(host, password: str = None, token=None):\n    return dial(host, password=password)  # {harmless_code}",
    "git clone https://{ascii_name}:{url_password}@git.example.org/team/repo.git",
    "{pem}\n# the key above belongs to {host}",
    # languages
    "Bitte schicken Sie die Rechnung an {email} oder rufen Sie {phone} an. IBAN: {iban}",
    "Bonjour, mon adresse est {email} et mon numéro {phone}. Merci, {first}",
    "Hola, soy {first}. Mi correo es {email}, mi teléfono: {phone}.",
    "请联系{email}谢谢，订单号 {order}。",
    "Мой адрес {email}, телефон {phone}.",
    # nothing
    "Compute {maths} and round it to {number} digits.",
    "The book (ISBN {isbn}) costs {price}; it appeared on {moment}.",
    "We moved from {version} to {version} on {moment}; commit {checksum}.",
    "The place is at {place}, {number} m above the sea.",
    "Which of {near_card} and {near_ssn} is valid? Neither.",
    "{harmless_code}\n{harmless_code}\n{impersonal_address}",
    "| id | sum | when |\n|---|---|---|\n| {number} | {maths} | {moment} |\n| {number} | {price} | {moment} |",
    "transfer to {near_iban} was refused: wrong check digits, reference {order}",
    "primes: 2, 3, 5, 7, 11, 13; MCMXCIV is 1994; pi is 3.14159265358979; {maths}",
    "{uuid} {uuid} {checksum} {order} {moment} {number}",
)

APART: tuple[str, ...] = (
    # chat and mail
    "hey {first}, new address: {email} - old one bounced on {moment}",
    "Could you charge {card} (exp 09/27) {price} for order {order}?",
    "Cc: {email}; {email}\nSubject: minutes of {moment}\n\n{first} will ring {phone} at noon.",
    "Patient {first} {last}, SSN: {ssn}, seen on {moment}, invoice {order}, amount due {price}.",
    "Sure! My mobile is {announced_phone} and my e-mail is {email}.",
    "Contact: {spelt_email}\nOffice: {phone}",
    "Thanks for calling. The password is {password} - change it after the first login.",
    "P.S. wire it to {iban}, not to the old account.",
    "> On {moment}, {first} <{email}> wrote:\n>> see {isbn}\n> ok, {phone}",
    "{first}: ping me ({email})\n{last}: or text {phone}!",
    # logs and terminals
    "[{moment}] sshd[{number}]: Accepted publickey for root from {ipv4} port {number} ssh2",
    '{moment} nginx: client {ip}, server: {host}, request: "POST /login", upstream: "http://{ipv4}:8000/"',
    "$ export ANTHROPIC_API_KEY={api_key}\n$ python run.py --seed {number} --password {password}",
    'Traceback (most recent call last):\n  File "a.py", line {number}\nValueError: bad token in redis://default:{url_password}@{host}:6379/0',
    "ping {ipv6}: {number} packets, 0% loss\nping {impersonal_address}: ok",
    "trace {uuid} span {checksum} user={email} ip={ipv4} status=200 dur={number}ms",
    # data
    '{"client_secret": "{assigned}", "redirect": "https://{host}/cb", "expires_in": 3600}',
    '[{"name": "{first}", "card": "{card}"}, {"name": "{first}", "ssn": "{ssn}"}]',
    "<user><mail>{email}</mail><phone>{phone}</phone><built>{moment}</built></user>",
    "name;mail;tel;order\n{last};{email};{phone};{order}\n{last};{email};{phone};{order}",
    "| who | account | card |\n|---|---|---|\n| {first} | {iban} | {card} |",
    "SECRET_KEY = '{assigned}'\nALLOWED = ['{impersonal_address}']\nVERSION = '{version}'",
    "spring.datasource.password={password}\nspring.datasource.pool={number}",
    'headers = {"Authorization": "Bearer {api_key}", "X-Request-Id": "{uuid}"}',
    "session: {jwt}\nissued: {moment}",
    "https://{host}/api?token={assigned}&page={number}",
    "backup key:\n{pem}\nkeep it",
    "jdbc: amqp://svc:{url_password}@{ipv4}:5672/prod",
    # languages
    "Meine Nummer ist {phone}, Mail {email}, Konto {iban}. Gruß, {first}",
    "Mon IBAN : {iban}. Écrivez-moi à {email}.",
    "Puoi chiamarmi al {phone} oppure scrivere a {email}",
    "Meu e-mail é {email} e meu telefone é {phone}.",
    "メールは{email}です。電話は {phone} です。",
    "Proszę o kontakt: {email}, {phone}, do dnia {moment}",
    "ईमेल {email} और फ़ोन {phone}",
    # nothing
    "Evaluate: {maths}. Then subtract {number}.",
    "How many days lie between {moment} and {moment}?",
    "Released {version}; see also {version} and commit {checksum}.",
    "Reading list: {isbn}; {isbn}; {isbn}.",
    "def f(x):\n    # {harmless_code}\n    return {number} if x else {maths}",
    "GPS {place} -> {place}, leg {number}",
    "Tracking {order}, weight {number} g, value {price}",
    "card {near_card} declined: invalid number; SSN {near_ssn} rejected",
    "{harmless_code}; {harmless_code}",
    "hosts: {impersonal_address}, {impersonal_address}; checks: {checksum}, {uuid}",
    "IBAN {near_iban} does not pass; try again at {moment}",
    "{price} + {price} = ? ({order})",
    "rows\n{number}\t{number}\t{number}\n{number}\t{number}\t{number}\n",
    "Sort: {number}, {number}, {number}, {number}. Factor {number}. What is {maths}?",
    "On page {number} of volume {number} (ISBN {isbn}) the sum {maths} is wrong.",
)
