"""Load and unload models as the policy decides. Each engine is a process.

The central method is `reconsider`, called after every change and at the time that the policy asked for.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from orchestrator.engine.contract import EngineSpec, Generation, Message, SystemPrompt
from orchestrator.engine.errors import EngineDied, EngineError, EngineStopped, MachineLost, ModelLoadFailed
from orchestrator.pool.dispatch import LeaseRequest, Waiter
from orchestrator.pool.errors import ModelBroken, ModelTooLarge, ModelUnavailable, PoolClosed, UnknownModel
from orchestrator.pool.footprint import Footprints
from orchestrator.pool.handle import EngineHandle
from orchestrator.pool.machine import Topology
from orchestrator.pool.machines import Machine, Machines
from orchestrator.pool.managed_model import ManagedModel
from orchestrator.pool.places import Place, Replica
from orchestrator.pool.policy import NeverFits, PoolActions, PoolBudget, PoolView, ReplicaId, Rules, decide
from orchestrator.pool.remote.client import RemoteModel
from orchestrator.pool.replica_choice import Pace
from orchestrator.registry.memory import size
from orchestrator.registry.models import ModelEntry
from orchestrator.task.stages import PATIENCE_SECONDS, ModelLoad, ModelWait, is_patient, tell, wait_noted

log = structlog.get_logger(__name__)


AHEAD_SLACK: Final = 300.0  # Seconds that prompts computed ahead may be late.


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders that engines write to. `prefixes` is for KV cells of prompts, of at most `prefix_bytes`; 0 for none."""

    logs: Path
    step_costs: Path | None = None
    prefixes: Path | None = None
    prefix_bytes: int = 0


class Residency:
    """Tracks the loaded models. `close` stops every process; `tasks` must outlive it."""

    def __init__(
        self,
        managed_models: dict[str, ManagedModel],
        machines: Machines,
        budget: PoolBudget,
        rules: Rules,
        footprints: Footprints,
        folders: Folders,
        system_prompts: Callable[[str], tuple[SystemPrompt, ...]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.budget, self.rules = budget, rules
        self._managed = managed_models
        self._machines = machines
        self._footprints = footprints
        self.folders = folders  # for engines that start from now on
        self._system_prompts = system_prompts
        self._engines: set[EngineHandle] = set()
        self._loads: set[asyncio.Task[None]] = set()
        self._tasks = tasks
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self._leaving = 0  # machines that are gone, while their engines end
        self._retired: set[RemoteModel] = set()  # servers that the registry has no more, while their requests end

    def open(self) -> None:
        for model in self._managed.values():
            self._connect(model)
            model.preload(_now())
        self.reconsider()

    def _connect(self, model: ManagedModel) -> None:
        # Follow the servers that a model has now, and let the others end.
        for server in model.places.servers:
            server.on_change = partial(self._note_server, model, server)
        while model.places.former_servers:
            self._retire(model.places.former_servers.pop())

    def _retire(self, server: RemoteModel) -> None:
        server.on_change = lambda: None
        self._retired.add(server)
        self._tasks.create_task(server.retire()).add_done_callback(lambda _: self._retired.discard(server))

    def _note_server(self, model: ManagedModel, server: RemoteModel) -> None:
        if seconds := server.open_seconds(_now()):
            log.warning("a server is left out", model=model.entry.id, seconds=seconds, reason=server.last_failure)
            asyncio.get_running_loop().call_later(seconds, self._ask_again, model)
        self._ask_again(model)

    def _ask_again(self, model: ManagedModel) -> None:
        model.reopen()
        self.reconsider()

    def adopt(
        self,
        entries: Mapping[str, ModelEntry],
        retired: Collection[str],
        limits: tuple[PoolBudget, Rules] | None = None,
    ) -> None:
        """Adopt other entries, and `limits` if given; HOT models that did not fit are then tried again.

        The engines of `retired` models end.
        """
        if limits is not None:
            self.budget, self.rules = limits
        for name, model in self._managed.items():
            entry = entries.get(name)
            if entry == model.entry and not model.retiring and name not in retired:
                continue
            if entry is None or entry.why_not or model.retiring or name in retired or model.places.absent:
                model.retire(entry)
            else:
                model.update(entry)
                self._connect(model)
                model.preload(_now())
            if entry is None:
                model.dispatcher.refuse(UnknownModel(name, f"model {name} is no longer in the registry"))
        for name, entry in entries.items():
            if name not in self._managed:
                model = ManagedModel.of(entry, self._machines.here.topology, self._machines.others)
                model.dispatcher.links = self._machines.links
                self._managed[name] = model
                self._connect(model)
                model.preload(_now())
        if limits is not None:
            self._try_hot_again()
        self.reconsider()

    def join(self) -> None:
        """Use the machines that there are now."""
        self._arrange()
        self.reconsider()

    async def leave(self, machine: str) -> None:
        """Use a machine no more that is not among the machines any more, and wait until its last engine has ended."""
        self._leaving += 1
        self.reconsider()
        replicas = [replica for model in self._managed.values() for replica in model.places.replicas]
        await asyncio.gather(*(replica.vacant.wait() for replica in replicas if replica.machine == machine))
        self._leaving -= 1
        for model in self._managed.values():
            model.places.barred.pop(machine, None)
        self._arrange()

    def _arrange(self) -> None:
        for model in self._managed.values():
            model.dispatcher.links = self._machines.links
            if not model.retiring:  # it is arranged when it becomes its successor
                model.places.arrange(self._machines.here.topology, self._machines.others)
                model.preload(_now())

    async def close(self) -> None:
        """Stop every engine and wait for the end of its process. Running loads are cancelled."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for model in self._managed.values():
            if model.dispatcher.waiting:
                model.dispatcher.refuse(self._closing(model))
            model.reopen()
        for load in self._loads:
            load.cancel()
        async with asyncio.TaskGroup() as stopping:
            for engine in tuple(self._engines):
                stopping.create_task(engine.stop())
            servers = (server for model in self._managed.values() for server in model.places.servers)
            for server in (*servers, *self._retired):
                stopping.create_task(server.close())

    @property
    def used(self) -> int:
        # of this machine, including reservations of loading engines
        replicas = (replica for model in self._managed.values() for replica in model.places.replicas)
        return sum(replica.bytes for replica in replicas if not replica.machine)

    async def acquire(self, model: ManagedModel, request: LeaseRequest) -> Place:
        """Lease a replica until `release`. Loads the model if needed, and waits if all that run it keep failing.

        Raises UnknownModel, ModelUnavailable, ModelBroken, ModelTooLarge, PoolClosed or the engine's ModelLoadFailed.
        """
        patient_until = math.inf if is_patient() else _now() + PATIENCE_SECONDS
        while True:
            try:
                return await self._acquire(model, request)
            except ModelBroken as error:
                if error.lasting or _now() + error.retry_seconds > patient_until:
                    raise
                with wait_noted(ModelWait(model.entry.id, str(error), error.retry_seconds)):
                    await model.rest(error.retry_seconds)

    async def _acquire(self, model: ManagedModel, request: LeaseRequest) -> Place:
        if self._closed:
            raise self._closing(model)
        place = model.dispatcher.choose(request)
        if place is not None:
            model.dispatcher.grant(place, request)
            if model.places.replicated or any(managed.dispatcher.waiting for managed in self._managed.values()):
                self.reconsider()  # another replica may be useful now, or other requests have waited for too long
            return place
        serves = model.dispatcher.serves(request)
        if not serves:
            model.check(_now(), request)
        waiter = Waiter(request, _now(), asyncio.get_running_loop().create_future())
        model.dispatcher.waiting[waiter] = None
        self.reconsider()
        if not waiter.granted.done() and not serves:
            tell(ModelLoad(model.entry.id))
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            model.dispatcher.waiting.pop(waiter, None)
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                self.release(waiter.granted.result())
            self.reconsider()
            raise

    def release(self, place: Place) -> None:
        place.leases -= 1
        if isinstance(place, RemoteModel):
            self.reconsider()
            return
        place.last_used = _now()
        model = self._managed.get(place.replica_id[0])
        if not place.leases:
            if model is not None and place.engine is not None and not self._closed:
                self._learn_pace(model, place, place.engine)
            self.reconsider()
        elif model is not None and model.dispatcher.waiting and not self._closed:
            model.dispatcher.serve()

    async def unload(self, model: ManagedModel) -> None:
        """Stop a model's engines when unused, and wait for that. New requests wait meanwhile."""
        leaving = [replica for replica in model.places.replicas if replica.state != "absent"]
        for replica in model.places.replicas:
            replica.preload_since = None
        for replica in leaving:
            replica.leaving = True
        self.reconsider()
        # One of them may be needed and loaded again before another one has ended.
        await asyncio.gather(*(replica.vacant.wait() for replica in leaving))

    def on_engine_exit(self, replica: Replica, engine: EngineHandle) -> None:
        """Note that an engine's process has ended. HOT models are loaded again at once, others on the next request."""
        if replica.engine is not engine:
            return
        name = replica.replica_id[0]
        model = self._managed[name]
        replica.vacate()
        if not isinstance(engine.failure, EngineStopped):
            reason, end_of_log = str(engine.failure), engine.failure.log if engine.failure is not None else ""
            lost = isinstance(engine.failure, MachineLost)  # neither the model nor its engine has failed
            if lost:
                model.failures.last = reason
            else:
                model.failures.note(_now(), reason)
            log.warning("an engine died", model=name, pid=engine.info.pid, reason=reason, engine_log=end_of_log)
            broken = model.failures.broken_for(_now()) > 0
            if model.pinned and not broken and not lost:
                replica.preload_since = _now()
            if broken and not model.places.loaded_or_loading:
                model.dispatcher.refuse(model.failures.error(_now()), only_here=True)
        self.reconsider()

    def _try_hot_again(self) -> None:
        for model in self._managed.values():
            if not model.failures.times:  # then the last failure was that it did not fit
                model.failures.last = None
            model.preload(_now())

    def reconsider(self) -> None:
        if self._closed:
            return
        self._finish_retiring()
        if self._leaving:
            self._arrange()
        actions = decide(self._view(), self.rules)
        self._carry_out(actions)
        for model in self._managed.values():
            if model.dispatcher.waiting:
                model.dispatcher.serve()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if actions.wake is not None:
            self._alarm = asyncio.get_running_loop().call_at(actions.wake, self.reconsider)

    def _finish_retiring(self) -> None:
        # Retiring models without processes are removed or replaced.
        for name, model in tuple(self._managed.items()):
            if not model.retiring:
                continue
            if not model.places.absent:
                model.retire(model.successor)
            elif model.successor is None:
                del self._managed[name]
                for server in model.places.servers:
                    self._retire(server)
            else:
                model.become(model.successor, self._machines.here.topology, self._machines.others)
                self._connect(model)
                model.preload(_now())
                if model.why_not is not None:
                    model.dispatcher.refuse(ModelUnavailable(name, model.why_not))

    def needed(self, model: ManagedModel) -> int:
        """Return the bytes that another engine of a model needs; 0 if the model cannot be loaded."""
        return 0 if model.entry.memory is None else self._footprints.needed(model.entry)

    def _view(self) -> PoolView:
        models = tuple(
            model.view(self.needed(model) if model.might_load else 0, partial(self._on_disk, model))
            for model in self._managed.values()
        )
        return PoolView(now=_now(), budget=replace(self.budget, machines=self._machines.budgets), models=models)

    def _on_disk(self, model: ManagedModel, machine: str) -> bool:
        target = self._machines.get(machine)
        return target is not None and target.on_disk(model.entry)

    def _carry_out(self, actions: PoolActions) -> None:
        for stop in actions.stops:
            model, replica = self._at(stop.replica_id)
            log.info("a model is unloaded", model=model.entry.id, reason=stop.reason)
            self._stop(model, replica)
        for refusal in actions.refusals:
            self._refuse(*self._at(refusal.replica_id), refusal.why)
        for replica_id in actions.loads:
            model, replica = self._at(replica_id)
            replica.start_loading(self._footprints.needed(model.entry), _now())
            load = self._tasks.create_task(self._load(model, replica, self._machines[replica.machine]))
            self._loads.add(load)
            load.add_done_callback(self._loads.discard)
        for model in self._managed.values():
            for replica in model.places.replicas:
                replica.draining = replica.replica_id in actions.draining

    async def _load(self, model: ManagedModel, replica: Replica, machine: Machine) -> None:
        entry = model.entry
        try:
            async with self._machines.decoding(machine.name).of_loading(replica, entry.options.threads) as threads:
                system_prompts = self._system_prompts(entry.id)
                spec = engine_spec(
                    entry, threads, replica, machine.topology, folders=self.folders, system_prompts=system_prompts
                )
                engine = await machine.start_engine(spec)
        except EngineError as error:
            replica.vacate()
            if isinstance(error, ModelLoadFailed) and error.kind in ("place", "lost"):
                self._load_elsewhere(model, machine.name, error)
                return
            lasting = not (isinstance(error, ModelLoadFailed) and error.passing)
            model.failures.note_load(_now(), str(error), lasting=lasting)
            end_of_log = error.log if isinstance(error, ModelLoadFailed) else ""
            log.warning("a model could not be loaded", model=entry.id, reason=str(error), engine_log=end_of_log)
            if not model.places.loaded_or_loading and model.successor is None:  # else the next entry may load
                self._refuse_or_rest(model, error)
        except asyncio.CancelledError:
            replica.vacate()
            raise
        else:
            replica.finish_loading(engine, threads, _now())
            model.failures.note_loaded()
            self._engines.add(engine)
            self._tasks.create_task(self._watch(replica, engine))
            self._measure(model, replica)
            self._learn_pace(model, replica, engine)
            if model.pinned and not model.dispatcher.waiting:
                self._tasks.create_task(self._compute_ahead(model, replica, engine, system_prompts))
            log.info("a model was loaded", model=model.entry.id, pid=engine.info.pid, seconds=engine.info.load_seconds)
        self.reconsider()  # before any request is served: if many wait, further replicas are loaded for them

    def _load_elsewhere(self, model: ManagedModel, machine: str, error: ModelLoadFailed) -> None:
        # The machine is at fault, and not the model.
        log.warning("a model could not be loaded on a node", model=model.entry.id, node=machine, reason=str(error))
        model.failures.last = str(error)
        if error.kind == "place":
            model.places.barred[machine] = str(error)
            self._arrange()
        if model.places.misplaced is not None:
            model.dispatcher.refuse(ModelUnavailable(model.entry.id, model.places.misplaced), only_here=True)
        self.reconsider()

    async def _compute_ahead(
        self, model: ManagedModel, replica: Replica, engine: EngineHandle, prompts: tuple[SystemPrompt, ...]
    ) -> None:
        due = _now() + AHEAD_SLACK
        # Requests that come meanwhile go first, because these have the class batch.
        for prompt in prompts:
            if not prompt.ahead:
                continue
            try:
                async with self._machines.decoding(replica.machine).of(replica, model.entry.options.threads, due):
                    await engine.generate(_beginning(prompt))
            except EngineError as error:  # requests will say what is wrong
                log.info("a system prompt was not computed ahead", model=model.entry.id, reason=str(error))

    @staticmethod
    def _refuse_or_rest(model: ManagedModel, error: EngineError) -> None:
        if model.failures.lasting:
            model.dispatcher.refuse(error, only_here=True)
        elif model.failures.hopeless or model.failures.broken_for(_now()) > 0:
            model.dispatcher.refuse(model.failures.error(_now()), only_here=True)

    def _stop(self, model: ManagedModel, replica: Replica) -> None:
        assert replica.engine is not None, "only an engine that is ready is stopped"
        self._measure(model, replica)
        replica.state = "stopping"
        self._tasks.create_task(replica.engine.stop())

    def _learn_pace(self, model: ManagedModel, replica: Replica, engine: EngineHandle) -> None:
        # Only machines differ: replicas of one have the same cores.
        if model.places.clustered:
            self._tasks.create_task(_note_pace(replica, engine))

    def _measure(self, model: ManagedModel, replica: Replica) -> None:
        assert replica.engine is not None, "only a running engine is measured"
        assert model.entry.memory is not None, "a model without a header is not loaded"
        machine = self._machines.get(replica.machine)
        measured = None if machine is None else machine.measure(replica.engine, model.entry.memory.total)
        if measured is not None:
            self._footprints.note(model.entry, measured)
            # More than was reserved counts at once.
            replica.bytes = max(replica.bytes, measured)

    def _refuse(self, model: ManagedModel, replica: Replica, why: NeverFits) -> None:
        entry = model.entry
        error = _too_large(entry, self._footprints.needed(entry), self._footprints.describe(entry), why)
        replica.preload_since = None
        model.failures.last = str(error)
        log.warning("a model does not fit", model=entry.id, reason=str(error))
        if not model.places.loaded_or_loading:
            model.dispatcher.refuse(error, only_here=True)

    async def _watch(self, replica: Replica, engine: EngineHandle) -> None:
        await engine.wait_dead()
        self._engines.discard(engine)
        self.on_engine_exit(replica, engine)

    def _at(self, replica_id: ReplicaId) -> tuple[ManagedModel, Replica]:
        model = self._managed[replica_id[0]]
        return model, model.places.replica(replica_id[1])

    def _closing(self, model: ManagedModel) -> PoolClosed:
        return PoolClosed(model.entry.id, f"model {model.entry.id}: the pool has stopped")


def engine_spec(
    entry: ModelEntry,
    threads: int,
    replica: Replica,
    topology: Topology,
    *,
    folders: Folders,
    system_prompts: tuple[SystemPrompt, ...] = (),
) -> EngineSpec:
    """Return what an engine of a model is started with: its entry's options, its place, and where it writes."""
    assert entry.file is not None, "a model that another server runs has no engine here"
    number, node = replica.replica_id[1], replica.node
    return EngineSpec.of(
        # A bound engine reads its weights into its own memory, which lies on its node if a pinned process touches it
        # first. A mapped file lies wherever it was read first.
        replace(entry.options, threads=threads, mmap=entry.options.mmap and node is None),
        file=str(entry.file),
        embeds=entry.embeds,
        ranks=entry.ranks,
        adapters=entry.adapters,
        step_costs=str(folders.step_costs) if folders.step_costs is not None else None,
        prefixes=str(folders.prefixes) if folders.prefixes is not None and folders.prefix_bytes else None,
        prefix_bytes=folders.prefix_bytes,
        system_prompts=system_prompts,
        cpus=topology.node(node).cpus if node is not None else (),
        log_file=str(folders.logs / (f"{entry.id}#{number}.log" if number else f"{entry.id}.log")),
        name=entry.id,
    )


def _beginning(prompt: SystemPrompt) -> Generation:
    # The shortest request; the engine stores what it has computed of the prompt.
    return Generation(
        messages=(Message("system", prompt.text), Message("user", "")),
        max_tokens=1,
        limits_thoughts=True,
        lora=prompt.lora,
        priority="batch",
        slack=AHEAD_SLACK,
    )


def _too_large(entry: ModelEntry, needed: int, parts: str, why: NeverFits) -> ModelTooLarge:
    pinned_note = f", of which HOT and pinned models keep {size(why.pinned)}" if why.pinned else ""
    where = "the budget" if why.node is None else f"the budget of NUMA node {why.node}"
    where += f" of node {why.machine}" if why.machine else ""
    message = (
        f"model {entry.id} needs {size(needed)} ({parts}); {where} is {size(why.limit)}{pinned_note}: "
        f"{size(why.short)} too little; accepted: fewer slots than {entry.slots}, a context below {entry.context}, "
        "or more memory under defaults in the registry"
    )
    return ModelTooLarge(entry.id, message, wanted=needed, budget=why.limit, pinned=why.pinned)


async def _note_pace(replica: Replica, engine: EngineHandle) -> None:
    with suppress(EngineDied):
        times = (await engine.stats()).step_times
        if times is not None and times.decode and replica.engine is engine:
            replica.pace = Pace(times.prompt_token, times.decode)


def _now() -> float:
    return asyncio.get_running_loop().time()
