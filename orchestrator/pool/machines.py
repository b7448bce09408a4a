"""The machines whose memory and cores the pool shares out: this one, and the nodes of a cluster that have joined."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.pool.decoding import Decoding
from orchestrator.pool.footprint import measure
from orchestrator.pool.handle import EngineHandle, StartEngine
from orchestrator.pool.machine import Topology
from orchestrator.pool.policy import PoolBudget
from orchestrator.pool.shipping import Carrier, Links
from orchestrator.registry.models import ModelEntry

_OF_A_NODE: Final = 0.9  # the share of a NUMA node's memory for engines bound to it


def measure_here(engine: EngineHandle, estimate: int) -> int | None:
    """Return the bytes of an engine on this machine, see `footprint.measure`."""
    return measure(engine.info.pid, estimate)


def always_on_disk(_entry: ModelEntry) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machine:
    """A machine, and how engines are started and measured there."""

    name: str  # empty for this one
    topology: Topology
    bytes: int  # that engines may take
    start_engine: StartEngine
    # The bytes that an engine takes, given the estimate from its header; None if nobody knows.
    measure: Callable[[EngineHandle, int], int | None] = measure_here
    on_disk: Callable[[ModelEntry], bool] = always_on_disk  # has the files of a model
    bytes_per_second: float = math.inf  # measured between it and this machine

    @property
    def budget(self) -> PoolBudget:
        return budget_of(self.bytes, self.topology)


def budget_of(total: int, topology: Topology) -> PoolBudget:
    nodes = {node.id: int(node.memory * _OF_A_NODE) for node in topology.nodes}
    return PoolBudget(total, nodes if len(nodes) > 1 else {}, topology.cores)


class Machines:
    """This machine, and the other ones by name. `others` are None without a cluster."""

    def __init__(self, here: Machine, decoding: Decoding) -> None:
        self.here = here
        self._others: dict[str, Machine] | None = None
        self._decoding = {"": decoding}
        self.links: Links | None = None  # None unless something carries files between the machines

    def __iter__(self) -> Iterator[Machine]:
        return iter((self.here, *(self._others or {}).values()))

    def __getitem__(self, name: str) -> Machine:
        return (self._others or {})[name] if name else self.here

    def get(self, name: str) -> Machine | None:
        """Return a machine; None if it has left."""
        return (self._others or {}).get(name) if name else self.here

    @property
    def others(self) -> Mapping[str, Topology] | None:
        return None if self._others is None else {name: machine.topology for name, machine in self._others.items()}

    @property
    def budgets(self) -> dict[str, PoolBudget]:
        return {name: machine.budget for name, machine in (self._others or {}).items()}

    def decoding(self, name: str) -> Decoding:
        """Return what shares the cores of a machine, which may have left since."""
        return self._decoding[name]

    def await_others(self, carrier: Carrier | None = None) -> None:
        """Have models wait for machines that have not joined yet. `carrier` connects them."""
        self._others = self._others or {}
        self.links = None if carrier is None else Links(carrier, self._bytes_per_second)

    def _bytes_per_second(self, name: str) -> float:
        machine = self.get(name)
        return math.inf if machine is None else machine.bytes_per_second

    def add(self, machine: Machine) -> Decoding:
        self._others = {**(self._others or {}), machine.name: machine}
        decoding = self._decoding[machine.name] = Decoding(machine.topology)
        return decoding

    def remove(self, name: str) -> None:
        self._others = {other: machine for other, machine in (self._others or {}).items() if other != name}
        if self.links is not None:
            self.links.forget(name)
