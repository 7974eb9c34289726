"""Rate limiters: delays, counts and options."""

from __future__ import annotations

import asyncio
import math
import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from aioinformer.errors import OptionsError
from aioinformer.workqueue import (
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    ItemFastSlowRateLimiter,
    MaxOfRateLimiter,
    RateLimiter,
    WithMaxWaitRateLimiter,
    default_controller_rate_limiter,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def delays(limiter: RateLimiter[str], item: str, number: int) -> list[float]:
    return [limiter.when(item) for _ in range(number)]


# ---------------------------------------------------------------- exponential


def test_exponential_delays_double_up_to_the_maximum() -> None:
    limiter = ItemExponentialFailureRateLimiter(0.5, 6)

    assert delays(limiter, "a", 6) == [0.5, 1, 2, 4, 6, 6]


def test_exponential_delays_are_counted_per_item() -> None:
    limiter = ItemExponentialFailureRateLimiter(1, 100)
    delays(limiter, "a", 3)

    assert delays(limiter, "b", 2) == [1, 2]
    assert limiter.num_requeues("a") == 3
    assert limiter.num_requeues("b") == 2
    assert limiter.num_requeues("c") == 0


def test_exponential_delays_restart_after_forget() -> None:
    limiter = ItemExponentialFailureRateLimiter(1, 100)
    delays(limiter, "a", 3)
    delays(limiter, "b", 1)

    limiter.forget("a")
    limiter.forget("never seen")

    assert limiter.num_requeues("a") == 0
    assert limiter.when("a") == 1
    assert limiter.when("b") == 2


def test_exponential_delays_stay_at_maximum_after_float_overflow() -> None:
    limiter = ItemExponentialFailureRateLimiter(0.001, 1000)

    last = delays(limiter, "a", 3000)[-1]

    assert last == 1000
    assert limiter.num_requeues("a") == 3000


def test_exponential_limiter_accepts_timedeltas() -> None:
    limiter = ItemExponentialFailureRateLimiter(
        timedelta(milliseconds=250), timedelta(minutes=1)
    )

    assert delays(limiter, "a", 9)[::4] == [0.25, 4, 60]


@pytest.mark.parametrize("attempts", [2**20, 2**31, 2**63, 2**2000])
def test_exponential_delays_never_exceed_maximum(attempts: int) -> None:
    limiter = ItemExponentialFailureRateLimiter(0.005, 1000)
    limiter._attempts["a"] = attempts

    assert limiter.when("a") == 1000
    assert limiter.num_requeues("a") == attempts + 1


def test_zero_base_delay_stays_zero() -> None:
    limiter = ItemExponentialFailureRateLimiter(0, 1000)
    limiter._attempts["a"] = 2**40

    assert limiter.when("a") == 0


# ---------------------------------------------------------------- jitter


class Fixed(random.Random):
    """Random source that returns the same number."""

    def __init__(self, drawn: float) -> None:
        super().__init__()
        self.drawn = drawn

    def random(self) -> float:
        return self.drawn


@pytest.mark.parametrize(
    ("jitter", "drawn", "expected"),
    [
        pytest.param(0.0, 0.75, [1, 2, 4, 6], id="none"),
        pytest.param(0.5, 0.0, [1, 2, 4, 6], id="longest"),
        pytest.param(0.5, 0.5, [0.75, 1.5, 3, 4.5], id="half"),
        pytest.param(1.0, 0.75, [0.25, 0.5, 1, 1.5], id="full"),
    ],
)
def test_jitter_shortens_delays_by_random_part(
    jitter: float, drawn: float, expected: list[float]
) -> None:
    limiter = ItemExponentialFailureRateLimiter(1, 6, jitter=jitter, rng=Fixed(drawn))

    assert delays(limiter, "a", 4) == expected


def test_jitter_spreads_simultaneous_failures_up_to_maximum() -> None:
    limiter = ItemExponentialFailureRateLimiter(1, 10, jitter=0.5, rng=random.Random(1))
    for number in range(200):
        delays(limiter, str(number), 8)

    given = [limiter.when(str(number)) for number in range(200)]

    assert 5 <= min(given) < 5.5
    assert 9.5 < max(given) <= 10
    assert len(set(given)) == 200


def test_jitter_does_not_use_global_random_state() -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)

    delays(ItemExponentialFailureRateLimiter(1, 10, jitter=1.0), "a", 5)

    assert random.random() == expected


# ---------------------------------------------------------------- fast and slow


def test_fast_slow_limiter_is_fast_then_slow() -> None:
    limiter = ItemFastSlowRateLimiter(0.1, timedelta(seconds=10), 3)

    assert delays(limiter, "a", 5) == [0.1, 0.1, 0.1, 10, 10]
    assert limiter.num_requeues("a") == 5


def test_fast_attempts_are_counted_per_item_until_forget() -> None:
    limiter = ItemFastSlowRateLimiter(1, 10, 1)
    delays(limiter, "a", 2)

    other = limiter.when("b")
    limiter.forget("a")

    assert other == 1
    assert limiter.num_requeues("a") == 0
    assert limiter.when("a") == 1
    assert limiter.when("b") == 10


def test_zero_fast_attempts_are_always_slow() -> None:
    assert ItemFastSlowRateLimiter(1, 10, 0).when("a") == 10


# ---------------------------------------------------------------- bucket


def test_bucket_allows_burst_then_keeps_rate() -> None:
    limiter = BucketRateLimiter(qps=4, burst=3, clock=Clock())

    assert delays(limiter, "a", 6) == [0, 0, 0, 0.25, 0.5, 0.75]


def test_bucket_is_shared_by_all_items() -> None:
    limiter = BucketRateLimiter(qps=2, burst=1, clock=Clock())
    limiter.when("a")

    limiter.forget("a")

    assert limiter.when("b") == 0.5
    assert limiter.num_requeues("a") == 0


def test_bucket_fills_up_to_burst() -> None:
    clock = Clock()
    limiter = BucketRateLimiter(qps=2, burst=2, clock=clock)
    delays(limiter, "a", 2)

    clock.now += 0.5
    after_one_token = delays(limiter, "a", 2)
    clock.now += 1000
    after_a_long_time = delays(limiter, "a", 3)

    assert after_one_token == [0, 0.5]
    assert after_a_long_time == [0, 0, 0.5]


def test_bucket_ignores_clock_that_steps_back() -> None:
    clock = Clock()
    limiter = BucketRateLimiter(qps=1, burst=2, clock=clock)
    limiter.when("a")

    clock.now -= 100

    assert delays(limiter, "a", 2) == [0, 1]


async def test_bucket_uses_time_of_loop() -> None:
    limiter = BucketRateLimiter(qps=1, burst=1)
    first = delays(limiter, "a", 2)

    await asyncio.sleep(1.5)

    assert first == [0, 1]
    assert limiter.when("a") == 0.5


def test_bucket_works_outside_of_loop() -> None:
    limiter = BucketRateLimiter(qps=0.001, burst=1)

    first, second = delays(limiter, "a", 2)

    assert first == 0
    assert second == pytest.approx(1000, abs=5)


# ---------------------------------------------------------------- combined


def test_max_of_limiter_returns_longest_delay() -> None:
    clock = Clock()
    limiter = MaxOfRateLimiter(
        ItemFastSlowRateLimiter(1, 3, 2), BucketRateLimiter(0.5, 2, clock=clock)
    )

    assert delays(limiter, "a", 5) == [1, 1, 3, 4, 6]


def test_max_of_limiter_calls_every_limiter() -> None:
    per_item = ItemExponentialFailureRateLimiter(10, 1000)
    bucket = BucketRateLimiter(qps=1, burst=2, clock=Clock())
    limiter = MaxOfRateLimiter(per_item, bucket)

    delays(limiter, "a", 3)

    assert bucket.when("b") == 2


def test_max_of_limiter_returns_largest_count_until_forget() -> None:
    one, two = ItemFastSlowRateLimiter(1, 2, 3), ItemFastSlowRateLimiter(1, 2, 3)
    limiter = MaxOfRateLimiter(one, two)
    two.when("a")
    limiter.when("a")
    before = limiter.num_requeues("a")

    limiter.forget("a")

    assert before == 2
    assert [each.num_requeues("a") for each in (limiter, one, two)] == [0, 0, 0]


def test_max_of_no_limiters_returns_no_delay() -> None:
    limiter = MaxOfRateLimiter[str]()

    assert limiter.when("a") == 0
    assert limiter.num_requeues("a") == 0


def test_max_wait_limiter_cuts_delays() -> None:
    inner = ItemExponentialFailureRateLimiter(1, 1000)
    limiter = WithMaxWaitRateLimiter(inner, timedelta(seconds=3))

    assert delays(limiter, "a", 4) == [1, 2, 3, 3]
    assert limiter.num_requeues("a") == 4

    limiter.forget("a")

    assert inner.num_requeues("a") == 0
    assert limiter.when("a") == 1


async def test_default_limiter_delays_item_from_5_ms_to_1000_s() -> None:
    limiter = default_controller_rate_limiter()

    given = delays(limiter, "a", 20)

    assert given[:4] == [0.005, 0.01, 0.02, 0.04]
    assert given[17:] == [0.005 * 2**17, 1000, 1000]


async def test_default_limiter_retries_ten_items_per_second_after_burst() -> None:
    limiter = default_controller_rate_limiter()

    given = [limiter.when(str(number)) for number in range(120)]

    assert given[:100] == [0.005] * 100
    assert given[100:] == pytest.approx([(n + 1) / 10 for n in range(20)])


def test_default_limiters_are_independent() -> None:
    default_controller_rate_limiter().when("a")

    assert default_controller_rate_limiter().num_requeues("a") == 0


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ItemExponentialFailureRateLimiter(-1, 5), id="negative"),
        pytest.param(lambda: ItemExponentialFailureRateLimiter(1, -5), id="maximum"),
        pytest.param(lambda: ItemExponentialFailureRateLimiter(math.nan), id="nan"),
        pytest.param(
            lambda: ItemExponentialFailureRateLimiter(jitter=-0.1), id="jitter"
        ),
        pytest.param(
            lambda: ItemExponentialFailureRateLimiter(jitter=1.1), id="jitter-over-1"
        ),
        pytest.param(
            lambda: ItemExponentialFailureRateLimiter(jitter=math.nan), id="jitter-nan"
        ),
        pytest.param(lambda: ItemFastSlowRateLimiter(-1, 1, 1), id="fast"),
        pytest.param(lambda: ItemFastSlowRateLimiter(1, math.inf, 1), id="slow"),
        pytest.param(lambda: ItemFastSlowRateLimiter(1, 1, -1), id="attempts"),
        pytest.param(lambda: BucketRateLimiter(0, 1), id="qps"),
        pytest.param(lambda: BucketRateLimiter(math.nan, 1), id="qps-nan"),
        pytest.param(lambda: BucketRateLimiter(math.inf, 1), id="qps-inf"),
        pytest.param(lambda: BucketRateLimiter(1, 0), id="burst"),
        pytest.param(lambda: BucketRateLimiter(1, math.nan), id="burst-nan"),  # type: ignore[arg-type]
        pytest.param(lambda: BucketRateLimiter(1, math.inf), id="burst-inf"),  # type: ignore[arg-type]
        pytest.param(
            lambda: WithMaxWaitRateLimiter(BucketRateLimiter(), timedelta(-1)),
            id="max-wait",
        ),
    ],
)
def test_invalid_limiter_options_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(OptionsError):
        make()
