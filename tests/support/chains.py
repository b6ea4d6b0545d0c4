"""The right tools for each family of the embedded environment, for tests only: nothing in the product knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiences.rollouts.types import Observation, Scenario
from tests.support.waiting import ScriptedChooser

CHAINS: Mapping[str, tuple[str, ...]] = {
    "chain_sum": ("int_calc",),
    "decimal_chain_sum": ("dec_calc",),
    "gcd": ("gcd",),
    "lcm": ("lcm",),
    "prime_factorization": ("factor",),
    "fraction_simplification": ("reduce_fraction",),
    "base_conversion": ("convert_base",),
    "bitwise_arithmetic": ("numerals", "int_calc"),
    "leg_counting": ("animals", "int_calc"),
    "spell_backward": ("reverse_letters",),
    "letter_counting": ("count_letter",),
    "word_sorting": ("sort_words",),
    "number_sorting": ("sort_numbers",),
    "calendar_arithmetic": ("calendar",),
    "simple_equations": ("solve_linear",),
    "caesar_cipher": ("shift_decoder",),
}


def expert(names: list[str], scenarios: Sequence[Scenario], *, verifies: bool) -> ScriptedChooser:
    """Calls the right chain, verifies if the context says so, and answers."""
    family = {scenario.query: str(scenario.metadata["family"]) for scenario in scenarios}

    def script(observation: Observation) -> str:
        for tool in CHAINS[family[observation.query]]:
            if f"{tool}#ok" not in observation.done:
                return tool
        return "verify" if verifies and "verify#ok" not in observation.done else "answer"

    return ScriptedChooser(names, script)
