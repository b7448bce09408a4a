"""The operations of procedures on personas, on the memory of learned routing, and on which router is followed."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from orchestrator.memrl.learning import FOLDER, evaluate_router
from orchestrator.memrl.memory import DATABASE
from orchestrator.procedures.errors import StepFailed
from orchestrator.procedures.ports import Operation, Work
from orchestrator.procedures.resources import DatabaseResource, RowsResource
from orchestrator.procedures.upkeep import Installation, NoArguments, run_or_fail
from orchestrator.registry.forms import Form
from orchestrator.run.journal.home import Home
from orchestrator.run.journal.reader import JournalReader
from orchestrator.run.personas import PersonaProposal
from orchestrator.service.configuration import configuration_path, variable, with_value

DAY_SECONDS = 86_400.0


class NewPersonaArguments(Form):
    name: str
    text: str
    description: str = ""
    distinct: bool = False  # add it even if it says nearly the same as another one


class PersonaArguments(Form):
    name: str


class ReplayArguments(Form):
    router: Literal["memory", "best", "random"] = "memory"
    # Only runs that ended within this many days before the journal's last event.
    days: Annotated[float, Field(gt=0, le=36_500)] = 1.0


class SettingArguments(Form):
    section: str
    key: str
    value: str | bool | int | float


class MemoryOperations:
    def __init__(self, installation: Installation, environ: Mapping[str, str]) -> None:
        self._on = installation
        self._environ = environ

    def by_name(self) -> dict[str, Operation[Any]]:
        every: tuple[Operation[Any], ...] = (*self._personas(), *self._memory(), self._setting())
        return {operation.name: operation for operation in every}

    def _personas(self) -> tuple[Operation[Any], ...]:
        return (
            Operation(
                name="personas.add",
                description="Add a persona, which takes effect at once. Fails if another one says nearly the same.",
                form=NewPersonaArguments,
                outputs={"name": "of the persona"},
                run=self._add_persona,
                changes=lambda arguments: [self._row(arguments.name)],
                preview=lambda arguments: f"add the persona {arguments.name}:\n{arguments.text}",
                undone=lambda _arguments, _work: run_or_fail(self._on.upkeep.personas_put_back),
            ),
            Operation(
                name="personas.retire",
                description="Retire a persona that was made at run time. Runs that name it go on with it.",
                form=PersonaArguments,
                run=self._retire_persona,
                changes=lambda arguments: [self._row(arguments.name)],
                preview=lambda arguments: f"retire the persona {arguments.name}",
                undone=lambda _arguments, _work: run_or_fail(self._on.upkeep.personas_put_back),
            ),
        )

    def _memory(self) -> tuple[Operation[Any], ...]:
        return (
            Operation(
                name="memory.rebuild",
                description="Make the index and the graph of the memory anew from its database.",
                form=NoArguments,
                run=self._rebuild,
                preview=lambda _: "make index and graph anew; the database, which they are made from, stays as it is",
            ),
            Operation(
                name="memory.compact",
                description="Merge what the memory holds twice, and drop what is beyond its capacity. A daemon does"
                " this every hour by itself. When it is undone, what was learned since is learned again.",
                form=NoArguments,
                outputs={"merged": "episodes that went into others", "dropped": "episodes beyond the capacity"},
                run=self._compact,
                changes=lambda _: [self._database()],
                guard=lambda _arguments, undoing: self._on.upkeep.memory_closed() if undoing else nullcontext(),
                undone=lambda _arguments, _work: self._rebuild_if_there(),
            ),
            Operation(
                name="memory.replay",
                description="Estimate from the choices of the last days what another router would have earned, and by"
                " how much that is more than what the rules would have earned (doubly robust, 95 % interval).",
                form=ReplayArguments,
                outputs={
                    "choices": "how many were logged",
                    "logged": "the mean reward that they have really earned",
                    "over_rules": "by how much the router earns more than the rules",
                    "low": "the lower end of the interval of that",
                    "high": "its upper end",
                    "effective": "the choices that the estimate is worth",
                    "estimates": "of the router's mean reward, by estimator",
                },
                run=self._replay,
                reads_only=True,
            ),
        )

    def _setting(self) -> Operation[Any]:
        return Operation(
            name="configuration.with",
            description="Return the configuration's file with another value, to be written by a step after this one.",
            form=SettingArguments,
            outputs={"content": "of the file", "path": "of the file"},
            run=self._with_value,
            reads_only=True,
        )

    def _row(self, name: str) -> RowsResource:
        quoted = name.replace("'", "''")
        return RowsResource(Home(self._on.home).database, "personas", f"name = '{quoted}'")

    def _database(self) -> DatabaseResource:
        return DatabaseResource(self._on.home / FOLDER / DATABASE)

    def _add_persona(self, arguments: NewPersonaArguments, work: Work) -> Mapping[str, Any]:
        proposal = PersonaProposal(
            name=arguments.name,
            text=arguments.text,
            description=arguments.description,
            by=work.owner or "a procedure",
            distinct=arguments.distinct,
        )
        placed = run_or_fail(lambda: self._on.upkeep.add_persona(proposal))
        if placed.name != arguments.name:
            reason = f"{placed.name} says nearly the same ({placed.similarity:.2f} alike)"
            raise StepFailed(f"{arguments.name} is not added: {reason}; accepted: another text, or distinct: true")
        return {"name": placed.name}

    def _retire_persona(self, arguments: PersonaArguments, _work: Work) -> Mapping[str, Any]:
        run_or_fail(lambda: self._on.upkeep.retire_persona(arguments.name))
        return {}

    def _rebuild(self, _arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        self._rebuild_now()
        return {}

    def _rebuild_if_there(self) -> None:
        if self._database().database.exists():  # there may have been none before
            self._rebuild_now()

    def _rebuild_now(self) -> None:
        def rebuilt() -> None:
            with self._on.upkeep.memory() as learning:
                learning.memory.rebuild()

        run_or_fail(rebuilt)

    def _compact(self, _arguments: NoArguments, _work: Work) -> Mapping[str, Any]:
        def compacted() -> Mapping[str, Any]:
            with self._on.upkeep.memory() as learning:
                return asdict(learning.memory.compact())

        return run_or_fail(compacted)

    def _replay(self, arguments: ReplayArguments, _work: Work) -> Mapping[str, Any]:
        def replayed() -> dict[str, Any]:
            with JournalReader.open_to_read(self._on.home) as journal:
                since = journal.last_time() - arguments.days * DAY_SECONDS
                return evaluate_router(journal, arguments.router, since)

        evaluation = run_or_fail(replayed)
        over = evaluation["over_rules"]
        return {
            "choices": evaluation["choices"],
            "logged": evaluation["logged"],
            "over_rules": over["value"],
            "low": over["low"],
            "high": over["high"],
            "effective": over["effective"],
            "estimates": evaluation["estimates"],
        }

    def _with_value(self, arguments: SettingArguments, _work: Work) -> Mapping[str, Any]:
        name = variable(arguments.section, arguments.key)
        if name in self._environ:
            problem = f"the environment variable {name} overrides the configuration's file"
            raise StepFailed(f"{problem}, so that a change of it would have no effect; accepted: no such variable")
        path = configuration_path(self._environ)
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise StepFailed(f"{path} cannot be read: {error}") from error
        after = run_or_fail(lambda: with_value(before, path, arguments.section, arguments.key, arguments.value))
        return {"content": after, "path": str(path)}
