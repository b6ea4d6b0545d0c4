"""A rollout's clock: it runs, stops while another party is waited for, and counts overlapping waits once."""

from __future__ import annotations

import asyncio

import pytest

from experiences.rollouts.rollout_clock import Clock, current_clock


async def test_clock_ends_the_body_when_the_time_is_over() -> None:
    clock = Clock(0.05)
    with pytest.raises(TimeoutError):
        async with clock.running():
            assert current_clock() is clock
            await asyncio.sleep(5)
    assert clock.over and current_clock() is not clock


async def test_the_clock_stops_while_another_party_is_waited_for() -> None:
    clock = Clock(0.1)
    async with clock.running():
        clock.pause()
        await asyncio.sleep(0.2)
        assert not clock.over
        clock.resume()
        assert not clock.over


async def test_the_counted_part_of_the_wait_is_gone() -> None:
    clock = Clock(0.1)
    async with clock.running():
        clock.pause()
        await asyncio.sleep(0.2)
        clock.resume(0.15)
        assert clock.over
        await asyncio.sleep(0)  # and yet there is time to write down what came


async def test_overlapping_waits_count_once() -> None:
    clock = Clock(0.3)

    async def call() -> None:
        current_clock().pause()
        await asyncio.sleep(0.1)
        current_clock().resume(0.1)

    async with clock.running():
        await asyncio.gather(*(call() for _ in range(20)))
        assert not clock.over


async def test_a_wait_that_ends_after_the_rollout_does_no_harm() -> None:
    clock = Clock(1)
    async with clock.running():
        clock.pause()
    clock.resume(0.5)
    assert not clock.over
    await asyncio.sleep(0)  # a time-out that fired late would end this test
    assert current_clock() is not clock


async def test_outside_of_a_rollout_the_clock_never_ends() -> None:
    clock = current_clock()
    clock.pause()
    clock.resume(1e9)
    assert not clock.over
