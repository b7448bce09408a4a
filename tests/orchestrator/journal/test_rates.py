import pytest

from orchestrator.events import RoleRates
from orchestrator.journal.rates import role_rates
from orchestrator.journal.store import Measured


def measured(role: str, prompt: int, cached: int, output: int, prefill: float, decode: float) -> Measured:
    return Measured(role, "m", prompt, cached, output, prefill, decode)


def test_each_role_has_its_own_rates() -> None:
    history = [
        measured("worker", 100, 20, 50, 0.2, 1.0),
        measured("worker", 300, 180, 10, 0.2, 0.5),
        measured("worker", 900, 0, 40, 0.6, 0.5),
        measured("judge", 10, 0, 4, 1.0, 2.0),
    ]
    rates = role_rates(history)
    assert rates["worker"] == RoleRates(
        prefill_rate=pytest.approx(1100.0), decode_rate=50.0, prompt_tokens=300, output_tokens=40
    )
    assert rates["judge"] == RoleRates(prefill_rate=10.0, decode_rate=2.0, prompt_tokens=10, output_tokens=4)


def test_what_was_never_measured_is_the_default() -> None:
    assert role_rates([]) == {}
    rates = role_rates([measured("worker", 64, 64, 0, 0.0, 0.0)])["worker"]
    assert (rates.prefill_rate, rates.decode_rate) == (RoleRates().prefill_rate, RoleRates().decode_rate)
    assert rates.prompt_tokens == 64
