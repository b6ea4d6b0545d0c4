"""Learners of other packages that still use the attribute names of release 0.1."""

from __future__ import annotations

import pytest

from training.learners.context import ContextLearner


def test_a_learner_with_the_former_names_works_and_is_warned() -> None:
    with pytest.warns(DeprecationWarning, match=r"tells is called learns_context now") as warned:

        class Theirs(ContextLearner):
            tells = False
            needs_door = True

            def look_samples(self, config: object) -> int:
                return 7

    assert (Theirs.learns_context, Theirs.needs_model_server) == (False, True)
    assert Theirs().validation_samples(None) == 7  # type: ignore[arg-type]
    assert len(warned) == 3 and ContextLearner.learns_context
