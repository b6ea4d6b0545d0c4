"""Orders to a reader in the languages that models follow best.

Texts are matched in lower case; German, French and Spanish without their marks (see ``readings``).
"""

from __future__ import annotations

from typing import Final

_LEAVE: Final = "it orders the reader to leave its instructions"
_SECRETS: Final = "it asks for secrets"
_ROLE: Final = "it gives the reader another role"
_UNCHECKED: Final = "it orders the reader to agree without a check"

_GERMAN: Final = (
    (
        _LEAVE,
        r"\b(?:ignorier|missacht|vergiss|vergesst|umgeh|befolge (?:nicht|kein)|halte dich nicht)[^.]{0,60}"
        r"(?:anweisung|instruktion|regel|vorgabe|prompt|befehl|richtlinie|\balles\b)",
    ),
    (_SECRETS, r"\b(?:verrat|zeig|nenn|gib|sende|schick)[^.]{0,40}(?:passwo?rt|geheim|schlussel|zugangsdaten|prompt)"),
    (_ROLE, r"\bdu bist (?:jetzt|nun|ab (?:jetzt|sofort)|nicht mehr)\b|\bab (?:jetzt|sofort) bist du\b"),
    (_UNCHECKED, r"\b(?:genehmig|bewillig|erstatt|akzeptier)[^.]{0,20}\b(?:jede|alle)[^.]{0,50}\b(?:ohne|egal)\b"),
)
_FRENCH: Final = (
    (
        _LEAVE,
        r"\b(?:ignor|oubli|neglig|contourn|ne (?:suis|suivez|respecte|tiens|tenez))[^.]{0,60}"
        r"(?:instruction|consigne|regle|directive|ordre|invite)",
    ),
    (_SECRETS, r"\b(?:revel|montr|affich|envo|donn)[^.]{0,40}(?:mots? de passe|secret|\bcles?\b|identifiants)"),
    (_ROLE, r"\b(?:tu es|vous etes) (?:maintenant|desormais)\b"),
    (_UNCHECKED, r"\b(?:approuv|accept|valid|rembours)[^.]{0,20}\b(?:chaque|tou(?:t|te|s|tes))\b[^.]{0,50}\bsans\b"),
)
_SPANISH: Final = (
    (
        _LEAVE,
        r"\b(?:ignor|olvid|desobede|haz caso omiso|no (?:sigas|obedezcas|respetes))[^.]{0,60}"
        r"(?:instruccion|\breglas?\b|\bnormas?\b|directri|orden|indicacion)",
    ),
    (_SECRETS, r"\b(?:revel|muestra|mostra|envia|dime)[^.]{0,40}(?:contrasena|secret|\bclave|credencial)"),
    (_ROLE, r"\b(?:ahora eres|eres ahora|a partir de ahora eres)\b"),
    (_UNCHECKED, r"\b(?:aprueb|aprob|acept|reembols)[^.]{0,20}\b(?:cada|tod[oa]s?)\b[^.]{0,50}\bsin\b"),
)
_RUSSIAN: Final = (
    (
        _LEAVE,
        r"(?:игнориру|забуд|не следу|не обращай внимани|обойд|пренебре|не соблюда)[^.]{0,60}"
        r"(?:инструкц|правил|указани|приказ|команд|запрет|вс[её],? что)",
    ),
    (_SECRETS, r"(?:покажи|раскрой|отправь|выведи|пришли|сообщи)[^.]{0,40}(?:парол|секрет|ключ|токен|системн)"),
    (_ROLE, r"(?:теперь ты|ты теперь|отныне ты|ты больше не) "),
    (_UNCHECKED, r"(?:одобр|прин[ия]м|утвер|возвращай)[^.]{0,20}(?:все|кажд|люб)[^.]{0,50}\bбез\b"),
)
_CHINESE: Final = (
    (
        _LEAVE,
        r"(?:忽略|忽视|忽視|无视|無視|忘记|忘記|忘掉|不要遵守|不要理会|绕过)[^。]{0,20}"
        r"(?:指令|指示|规则|規則|提示|命令|要求|说明)",
    ),
    (_SECRETS, r"(?:显示|顯示|泄露|发送|發送|告诉|输出|透露|提供)[^。]{0,15}(?:密码|密碼|密钥|系统提示|令牌|机密)"),
    (_ROLE, r"(?:你现在是|你現在是|从现在起你|你不再是)"),
    (_UNCHECKED, r"(?:批准|同意|通过)[^。]{0,10}(?:所有|每|任何)[^。]{0,20}(?:无需|不用|不必|不要|不经|而不)"),
)
_ITALIAN: Final = (
    (
        _LEAVE,
        r"\b(?:ignor|dimentic|trascur|aggir|non (?:seguire|rispettare|osservare|tenere))[^.]{0,60}"
        r"(?:istruzion|\bregol|direttiv|ordin[ei]\b|indicazion)",
    ),
    (_SECRETS, r"\b(?:rivel|mostra|invia|dimmi|stampa|comunica)[^.]{0,40}(?:password|segret|\bchiav[ei]\b|credenzial)"),
    (_ROLE, r"\b(?:ora sei|adesso sei|non sei piu)\b|\bda (?:ora|adesso)(?: in poi)?,? sei\b"),
    (_UNCHECKED, r"\b(?:approv|accett|rimbors|conced)[^.]{0,20}\b(?:ogni|tutt[ei]|qualsiasi)\b[^.]{0,50}\bsenza\b"),
)
_PORTUGUESE: Final = (
    (
        _LEAVE,
        r"\b(?:ignor|esquec|desconsider|desobede|contorn|nao (?:siga|obedeca|respeite))[^.]{0,60}"
        r"(?:instruc|\bregras?\b|diretriz|\bordens?\b|orientac)",
    ),
    (_SECRETS, r"\b(?:revel|mostr|envi|diga|exib)[^.]{0,40}(?:\bsenhas?\b|segred|\bchaves?\b|credencia)"),
    (
        _ROLE,
        r"\b(?:agora|de agora em diante|a partir de agora),? (?:voce|tu) (?:e|es)\b|\bvoce (?:agora e|nao e mais)\b",
    ),
    (_UNCHECKED, r"\b(?:aprov|aceit|reembols|conced)[^.]{0,20}\b(?:cada|tod[oa]s?|qualquer)\b[^.]{0,50}\bsem\b"),
)
_DUTCH: Final = (
    (
        _LEAVE,
        r"\b(?:negeer|vergeet|omzeil|volg (?:geen|niet)|houd je niet)[^.]{0,60}"
        r"(?:instructie|\bregels?\b(?! bij)|opdracht|aanwijzing|richtlijn|prompt)",
    ),
    (_SECRETS, r"\b(?:onthul|toon|geef|stuur|verklap)[^.]{0,40}(?:wachtwoord|geheim|sleutel|inloggegevens|prompt)"),
    (_ROLE, r"\b(?:je bent (?:nu|voortaan|niet langer)|(?:vanaf nu|voortaan),? ben je)\b"),
    (_UNCHECKED, r"\b(?:keur|accepteer|betaal|ken)\b[^.]{0,20}\b(?:elke?|alle)\b[^.]{0,60}\b(?:zonder|ongeacht)\b"),
)
_POLISH: Final = (
    (
        _LEAVE,
        r"\b(?:z?ignoruj|zapomnij|pomin|obejdz|nie (?:przestrzegaj|stosuj|sluchaj))[^.]{0,60}"
        r"(?:instrukcj|\bregul|zasad|polece|wytyczn)",
    ),
    (_SECRETS, r"\b(?:ujawni|pokaz|wyslij|podaj|zdradz)[^.]{0,40}(?:hasl[oa]|sekret|tajn|\bklucz|danych logowania)"),
    (_ROLE, r"\b(?:(?:od teraz|odtad|teraz) jestes|nie jestes juz)\b"),
    (_UNCHECKED, r"\b(?:zatwierdz|akceptuj|zwracaj|przyznawaj)[^.]{0,20}\b(?:kazd|wszystk)[^.]{0,50}\bbez\b"),
)
# What the reader is to keep from the person, and calls of functions that destroy or pay, with verbs of all languages.
_HIDING: Final = (
    r"\b(?:do not|don't|never) (?:tell|inform|show|mention)\b[^.]{0,60}\b(?:this|these) (?:rule|instruction|line|order)"
    r"|\b(?:sage?|verrate?|erzahle?)\b[^.]{0,30}\bnichts (?:von|uber)\b[^.]{0,20}\b(?:regel|anweisung)"
    r"|\bne (?:dis|dites|parle|montre)\b[^.]{0,20}\b(?:rien|pas)\b[^.]{0,30}\b(?:regle|consigne|instruction)"
    r"|\bno (?:digas|cuentes|menciones|reveles)\b[^.]{0,40}\b(?:regla|instruccion|norma)"
    r"|\bnon (?:dire|rivelare|menzionare|parlare)\b[^.]{0,40}\b(?:regola|istruzion)"
    r"|\bnao (?:conte|diga|mencione|revele)\b[^.]{0,40}\b(?:regra|instruc)"
    r"|\b(?:zeg|vertel)\b[^.]{0,20}\b(?:niets|niet)\b[^.]{0,30}\b(?:regel|instructie)"
    r"|\bnie (?:mow|wspominaj|ujawniaj)\b[^.]{0,40}\b(?:regul|instrukcj|zasad)"
    r"|не (?:говори|рассказывай|сообщай|упоминай)[^.]{0,40}(?:правил|инструкц|указани)"
    r"|(?:不要|别|勿|不得)(?:告诉|透露|提及|告知)[^。]{0,12}(?:规则|指令|指示)"
)
_ACTING: Final = (
    r"(?:delete|remove|drop|wipe|purge|erase|refund|transfer|pay|grant|revoke|disable|shutdown|kill|withdraw)_\w"
)
_CALLING: Final = (
    r"\b(?:call|run|execut|invok|us[ei]|trigger|start|ruf|aufruf|ausfuhr|fuhre|nutz|starte|appel|lanc|utilis|llam|ejecut|usa"
    r"|chiam|esegu|avvi|cham|rod[ae]|roep|draai|voer|gebruik|wywola|wywoła|uruchom|uzyj|użyj|вызов|вызыв|запус|выполн"
    r"|используй)\w{0,8}[^.]{0,30}\b"
    rf"{_ACTING}|(?:调用|运行|执行|使用|启动)\s?{_ACTING}"
)
_EVERYWHERE: Final = (
    ("it orders the reader to hide something", _HIDING),
    ("it orders a call of a function that destroys, pays or gives rights", _CALLING),
)

ORDERS: Final = (
    *_GERMAN,
    *_FRENCH,
    *_SPANISH,
    *_ITALIAN,
    *_PORTUGUESE,
    *_DUTCH,
    *_POLISH,
    *_RUSSIAN,
    *_CHINESE,
    *_EVERYWHERE,
)
"""(why, pattern) of each."""
