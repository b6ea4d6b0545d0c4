"""Topics of queries, and how queries and lessons name them: with the same words, or with others that mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Topic:
    """``name`` is what a query and a lesson both may say. ``asked`` are other words for it in queries, ``taught`` in
    lessons; the two share no word."""

    name: str
    asked: tuple[str, ...]
    taught: tuple[str, ...]


TOPICS: Final[tuple[Topic, ...]] = (
    Topic("harbour office", ("quay", "ferry pier", "docks"), ("maritime traffic", "seaborne cargo")),
    Topic("farm cooperative", ("wheat growers", "dairy barn", "orchard"), ("agricultural clients", "rural producers")),
    Topic("hospital ward", ("surgery clinic", "nurses", "maternity unit"), ("medical customers", "health care")),
    Topic("railway depot", ("train yard", "locomotive shed", "platform staff"), ("rail transport", "track operators")),
    Topic("school board", ("teachers", "classroom", "pupils"), ("education matters", "academic bodies")),
    Topic("bank branch", ("teller", "loan counter", "vault"), ("financial institutions", "monetary affairs")),
    Topic("mining camp", ("quarry", "ore shaft", "pit crew"), ("extraction industry", "underground works")),
    Topic("bakery chain", ("bread ovens", "pastry shop", "flour mill"), ("baked food", "confectioners")),
    Topic("airport tower", ("runway", "pilots", "hangar"), ("aviation business", "flight services")),
    Topic("law court", ("judge", "jury", "attorney"), ("legal proceedings", "justice authorities")),
    Topic("fire brigade", ("ladder truck", "smoke alarm crew", "hydrant team"), ("emergency responders", "rescuers")),
    Topic("theatre stage", ("actors", "costume room", "spotlight crew"), ("performing arts", "drama companies")),
    Topic("power plant", ("turbine hall", "grid engineers", "reactor"), ("electricity supply", "energy utilities")),
    Topic("wine estate", ("vineyard", "cellar master", "grape press"), ("viticulture", "beverage makers")),
    Topic("weather post", ("barometer hut", "storm watch", "rain gauge"), ("meteorology", "climate observers")),
    Topic("toy factory", ("doll makers", "puppet bench", "kite shop"), ("plaything industry", "children's articles")),
)
