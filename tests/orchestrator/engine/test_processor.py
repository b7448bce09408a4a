import platform
from pathlib import Path

import pytest

from orchestrator.engine.processor import cpu_model


def test_the_processor_is_named(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast 9000: turbo\nmodel name\t: other\n")
    assert cpu_model(info) == "Fast 9000: turbo"
    assert cpu_model(tmp_path / "absent")


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: EPYC\n\ncpu family\t: 9\n", "EPYC (family 25, model 1)"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", f"{platform.machine()} (implementer 0x41, part 0xd0c)"),
    ],
)
def test_a_processor_is_known_by_more_than_its_name(tmp_path: Path, told: str, named: str) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(told)
    assert cpu_model(info) == named
