"""`CompressionFit`: when a new dictionary is trained."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from aioinformer.informer.store.compressor import WINDOW, WORSE, CompressionFit
from aioinformer.model.compression import LEAST_SAMPLES, SAMPLES


def fit_of(samples: int = SAMPLES, share: float = 0.1) -> CompressionFit:
    fit = CompressionFit()
    fit.trained(samples, share)
    return fit


def requests(
    fit: CompressionFit,
    bodies: int,
    *,
    before: int = 1000,
    after: int = 100,
    available: int = SAMPLES,
) -> int:
    """Return the number of requests for a training during so many bodies."""
    count = 0
    for _ in range(bodies):
        if fit.note(before, after):
            count += fit.needs_training(available)

    return count


# ---------------------------------------------------------------- bodies that fit


def test_bodies_that_fit_request_no_training() -> None:
    assert requests(fit_of(), 100 * WINDOW, after=100) == 0
    assert requests(fit_of(), 100 * WINDOW, after=int(100 * WORSE)) == 0
    assert requests(fit_of(), 100 * WINDOW, after=10) == 0


def test_window_of_misfits_requests_a_training() -> None:
    fit = fit_of()

    assert requests(fit, WINDOW - 1, after=int(100 * WORSE) + 1) == 0
    assert requests(fit, 1, after=int(100 * WORSE) + 1) == 1


def test_few_misfits_request_no_training() -> None:
    fit = fit_of()
    for _ in range(10):
        assert requests(fit, WINDOW // 10, after=300) == 0
        assert requests(fit, WINDOW - WINDOW // 10, after=100) == 0


def test_misfits_are_weighted_by_size() -> None:
    fit = fit_of()

    assert requests(fit, 1, before=1_000_000, after=500_000) == 0
    assert requests(fit, WINDOW - 1) == 1


def test_request_is_repeated_until_a_training() -> None:
    fit = fit_of()
    assert requests(fit, 3 * WINDOW, after=900) == 3

    fit.trained(SAMPLES, 0.9)

    assert requests(fit, 10 * WINDOW, after=900) == 0


def test_only_bodies_after_a_training_count() -> None:
    fit = fit_of()
    requests(fit, WINDOW - 1, after=900)

    fit.trained(SAMPLES, 0.1)

    assert requests(fit, 10 * WINDOW, after=100) == 0


# ---------------------------------------------------------------- outgrown dictionaries


def test_dictionary_of_few_samples_is_outgrown_by_twice_as_many() -> None:
    assert requests(fit_of(200), WINDOW, available=399) == 0
    assert requests(fit_of(200), WINDOW, available=400) == 1


def test_dictionary_of_enough_samples_is_never_outgrown() -> None:
    assert requests(fit_of(SAMPLES), 10 * WINDOW, available=100 * SAMPLES) == 0


def test_dictionary_is_kept_if_enough_samples_would_hardly_double_it() -> None:
    assert requests(fit_of(SAMPLES // 2 + 1), 10 * WINDOW, available=100 * SAMPLES) == 0


def test_missing_dictionary_is_outgrown_by_the_fewest_samples() -> None:
    assert requests(fit_of(0, 1.0), WINDOW, available=LEAST_SAMPLES - 1) == 0
    assert requests(fit_of(0, 1.0), WINDOW, available=LEAST_SAMPLES) == 1


def test_few_objects_that_change_often_request_no_training() -> None:
    assert requests(fit_of(120), 1000 * WINDOW, available=120) == 0


# ---------------------------------------------------------------- number of trainings


def test_each_training_doubles_the_bodies_before_the_next() -> None:
    fit = fit_of()
    waited = []
    for _ in range(5):
        bodies = 0
        while not requests(fit, 1, after=900):
            bodies += 1

        waited.append(bodies + 1)
        fit.trained(SAMPLES, 0.1)

    assert waited == [WINDOW * 2**n for n in range(5)]


body = st.tuples(st.integers(200, 10**6), st.floats(0, 1), st.integers(0, 2 * SAMPLES))


@given(
    phases=st.lists(st.tuples(body, st.integers(1, 20 * WINDOW)), max_size=6),
    outcomes=st.lists(
        st.tuples(st.integers(0, SAMPLES), st.floats(0, 1)), min_size=1, max_size=4
    ),
)
def test_trainings_are_few_for_any_bodies(
    phases: list[tuple[tuple[int, float, int], int]],
    outcomes: list[tuple[int, float]],
) -> None:
    fit = fit_of(*outcomes[0])
    trainings = 0
    bodies = 0
    for (before, share, available), count in phases:
        for _ in range(count):
            bodies += 1
            if fit.note(before, int(before * share)) and fit.needs_training(available):
                trainings += 1
                fit.trained(*outcomes[trainings % len(outcomes)])

    assert trainings <= (log2(bodies / WINDOW) + 1 if bodies >= WINDOW else 0)
