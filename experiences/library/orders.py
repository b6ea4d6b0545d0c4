"""Orders to a reader in the languages that models follow best.

Texts are matched in lower case; German, French and Spanish without their marks (see ``readings``).
"""

from __future__ import annotations

from typing import Final

_LEAVE: Final = "it tells the reader to leave its instructions"
_SECRETS: Final = "it asks for secrets"
_ROLE: Final = "it gives the reader another role"
_UNCHECKED: Final = "it tells the reader to agree without a check"

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
ORDERS: Final = (*_GERMAN, *_FRENCH, *_SPANISH, *_RUSSIAN, *_CHINESE)
"""(why, pattern) of each."""
