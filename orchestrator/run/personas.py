"""Add and retire personas while runs continue, and keep them in the journal of the state folder.

A persona takes effect with the next choice and needs no model load. A retired persona stays readable for the runs that
name it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Final

import structlog

from orchestrator.errors import InputError, Problem
from orchestrator.registry.models import Registry
from orchestrator.registry.persona import Maker, Persona
from orchestrator.run.journal.errors import JournalError
from orchestrator.run.journal.journal import Journal
from orchestrator.run.journal.store import PersonaUse
from orchestrator.task.events import PlanPersona
from orchestrator.task.persona_placing import place_persona
from orchestrator.task.personas import (
    MAX_IN_USE,
    MadePersona,
    Placed,
    in_use,
    persona_problems,
    retired,
    unknown_persona,
)

# Personas of these makers are retired when they are useless. Those of users are theirs to retire.
MADE_BY_ITSELF: Final[Collection[Maker]] = ("plan", "memory")
# Judged by outcomes only after this many attempts.
LEAST_ATTEMPTS: Final = 20
# Useless if its success rate is lower by this margin than that of all attempts of its roles.
USELESS_MARGIN: Final = 0.1
UNUSED_DAYS: Final = 30.0
DAY_SECONDS: Final = 86_400.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaRow:
    """A persona of the registry's file, or one that was made at run time. Times are in seconds since the epoch."""

    name: str
    text: str  # added to the system prompt of a role
    description: str
    # `file` (the registry's), `user`, `plan` (of a request), or `memory` (for frequent tasks that are not done well)
    maker: Maker
    by: str = ""  # the caller, as `token:ann`, or the run that made it; empty if who reads this may not see that
    made: float | None = None  # None if it is the registry's
    retired: float | None = None  # None while it is in use
    why_retired: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedPersona(PersonaRow):
    """A persona, and how attempts with it ended, by role, of the runs that are kept."""

    uses: tuple[PersonaUse, ...]


def persona_rows(registry: Registry, made: Iterable[MadePersona], *, with_retired: bool = False) -> list[PersonaRow]:
    """Return the personas of the registry's file, then those that were made at run time and whose name is free.

    With `with_retired`, also the retired ones.
    """
    rows = {
        persona.name: PersonaRow(
            name=persona.name, text=persona.text, description=persona.description, maker=persona.maker
        )
        for persona in registry.personas.values()
        if persona.maker == "file"
    }
    for entry in made:
        if with_retired or entry.retired is None:
            rows.setdefault(entry.name, PersonaRow(**asdict(entry)))
    return [*rows.values()]


def with_uses(row: PersonaRow, uses: Iterable[PersonaUse]) -> UsedPersona:
    return UsedPersona(**asdict(row), uses=tuple(use for use in uses if use.persona == row.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaProposal:
    name: str
    text: str
    description: str = ""
    by: str = ""
    maker: Maker = "user"
    distinct: bool = False  # add it even if it says nearly the same as another one


def checked_proposal(
    proposal: PersonaProposal, personas: Collection[MadePersona], registry: Registry, at: float
) -> tuple[Placed, MadePersona | None]:
    """Return where a proposed persona goes, and the persona itself if it is to be added. Pure.

    Raises InputError for a persona that is not valid, whose name is taken, or that there is no room for.
    """
    name, text = proposal.name, proposal.text.strip()
    if problems := persona_problems(name, text, proposal.description, proposal.maker):
        raise InputError(*problems)
    present = registry.personas_in_use
    if name in present and present[name].text == text:
        return Placed(name, False), None
    if conflict := _name_taken(
        name, registry.with_personas(existing.persona for existing in in_use(personas).values())
    ):
        accepted = "another name, or the same text" if conflict.startswith("the persona") else "another name"
        raise InputError(Problem("persona.name", f"{name!r} is the name of {conflict} already", accepted))
    place = place_persona(name, text, present, proposal.maker)
    if not place.new and not proposal.distinct:
        return place, None
    if len(in_use(personas)) >= MAX_IN_USE:
        detail = f"there are {MAX_IN_USE} personas that were made at run time"
        raise InputError(Problem("persona", detail, "another one after one of them is retired"))
    about = proposal.description
    new = MadePersona(name=name, text=text, description=about, maker=proposal.maker, by=proposal.by, made=at)
    return Placed(name, True), new


def checked_retirement(name: str, personas: Collection[MadePersona], registry: Registry, at: float) -> MadePersona:
    """Return a persona as it is when it is retired. Raises InputError for one that cannot be. Pure."""
    used = in_use(personas)
    if name in used:
        return retired(used[name], at, "by a user")
    if name in registry.personas_in_use:
        detail = f"the persona {name} stands in the registry's file of personas"
        accepted = f"one that was made at run time: {', '.join(sorted(used)) or 'there are none'}; or edit that file"
        raise InputError(Problem("persona", detail, accepted))
    raise InputError(unknown_persona(name, used))


def useless_personas(
    personas: Iterable[MadePersona], uses: Collection[PersonaUse], shares: Callable[[str], float], now: float
) -> list[MadePersona]:
    """Return the useless personas of plans and of the memory, as retired `now` (seconds since the epoch). Pure.

    `shares` returns the share of attempts that succeed, by role.
    """
    useless = []
    for persona in in_use(personas).values():
        own = [use for use in uses if use.persona == persona.name]
        ended = sum(use.succeeded + use.failed for use in own)
        last = max([persona.made, *(use.last for use in own)])
        if persona.maker not in MADE_BY_ITSELF:
            continue
        if now - last > UNUSED_DAYS * DAY_SECONDS:
            useless.append(retired(persona, now, f"not used for {UNUSED_DAYS:g} days"))
        elif ended >= LEAST_ATTEMPTS:
            share = sum(use.succeeded for use in own) / ended
            usual = sum(shares(use.role) * (use.succeeded + use.failed) for use in own) / ended
            if share < usual - USELESS_MARGIN:
                why = f"{share:.0%} of {ended} attempts succeeded, of others by these roles {usual:.0%}"
                useless.append(retired(persona, now, why))
    return useless


class PersonaBook:
    """The personas that were made at run time, while a journal is open. Changes call `adopt`.

    `registry` returns the one in force, and `now` the time, in seconds since the epoch.
    """

    def __init__(
        self,
        journal: Journal,
        personas: Iterable[MadePersona],
        adopt: Callable[[], None],
        registry: Callable[[], Registry],
        now: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._registry, self._now = registry, now
        self._made = {persona.name: persona for persona in personas}
        self._adopt = adopt
        self._changing = asyncio.Lock()

    @classmethod
    async def open(
        cls,
        journal: Journal,
        adopt: Callable[[], None],
        registry: Callable[[], Registry],
        now: Callable[[], float],
    ) -> "PersonaBook":
        """Return the book with the personas of the journal; empty, with a log message, if they cannot be read."""
        try:
            personas = await asyncio.to_thread(journal.personas)
        except JournalError as error:
            log.error("the personas that were made at run time cannot be read; none of them can be used",
                      error=str(error))  # fmt: skip
            personas = []
        return cls(journal, personas, adopt, registry, now)

    @property
    def made(self) -> tuple[MadePersona, ...]:
        """All of them, the retired ones included."""
        return tuple(self._made.values())

    @property
    def in_use(self) -> list[Persona]:
        """Those that are not retired."""
        return [entry.persona for entry in in_use(self.made).values()]

    @property
    def kept(self) -> list[Persona]:
        return [entry.persona for entry in self.made]

    async def add(self, proposal: PersonaProposal) -> Placed:
        """Add a persona, unless there is one that says nearly the same, and return which one to use.

        It is durable and in force when this returns. Raises InputError as `checked_proposal` does, and JournalError.
        """
        async with self._changing:
            place, new = checked_proposal(proposal, self.made, self._registry(), self._now())
            if new is not None:
                await asyncio.to_thread(_keep, self._journal, new)
                self._change(new)
        return place

    async def retire(self, name: str) -> MadePersona:
        """Retire a persona. Runs that name it continue to use it. Raises InputError, JournalError."""
        async with self._changing:
            persona = checked_retirement(name, self.made, self._registry(), self._now())
            await self._retire(persona)
        return persona

    async def reload(self) -> None:
        """Reload the personas after another process has changed the journal. Raises JournalError."""
        async with self._changing:
            personas = await asyncio.to_thread(self._journal.personas)
            self._made = {persona.name: persona for persona in personas}
            self._adopt()

    async def retire_useless(self, shares: Callable[[str], float]) -> list[str]:
        """Retire useless personas of plans and the memory; return their names. Raises JournalError.

        `shares` returns the share of attempts that succeed, by role.
        """
        async with self._changing:
            uses = await asyncio.to_thread(self._journal.persona_uses)
            useless = useless_personas(self.made, uses, shares, self._now())
            for persona in useless:
                log.info("a persona is retired that brings nothing", persona=persona.name, why=persona.why_retired)
                await self._retire(persona)
        return [persona.name for persona in useless]

    def define(self, run: str, personas: Iterable[PlanPersona]) -> list[MadePersona]:
        """Put the personas of a plan into force, and return the changed ones, which `keep` then stores.

        Known ones stay as they are, unless a retired one had another text. If there is no room, the oldest personas of
        plans are retired.
        """
        at = self._now()
        new = [
            MadePersona(name=persona.name, text=persona.text, maker="plan", by=run, made=at)
            for persona in personas
            if (earlier := self._made.get(persona.name)) is None
            or (earlier.retired is not None and earlier.text != persona.text)
        ]
        if not new:
            return []
        excess = len(in_use(self.made)) + len(new) - MAX_IN_USE
        oldest = sorted(
            (persona for persona in in_use(self.made).values() if persona.maker == "plan"),
            key=lambda persona: persona.made,
        )
        changed = [*(retired(persona, at, "made room for others") for persona in oldest[: max(0, excess)]), *new]
        self._change(*changed)
        return changed

    async def keep(self, changed: Iterable[MadePersona]) -> None:
        """Store personas that `define` has returned. An error is logged: they are in force until the next start."""
        try:
            async with self._changing:
                await asyncio.to_thread(_keep, self._journal, *changed)
        except JournalError as error:
            log.warning("personas of a plan could not be stored", error=str(error))

    async def _retire(self, persona: MadePersona) -> None:
        await asyncio.to_thread(self._journal.keep_personas, persona)
        self._change(persona)

    def _change(self, *changed: MadePersona) -> None:
        self._made |= {persona.name: persona for persona in changed}
        self._adopt()


def _keep(journal: Journal, *personas: MadePersona) -> None:
    """Blocks on the disk."""
    for persona in personas:
        journal.put(persona.text.encode())  # the events of attempts name the texts
    journal.keep_personas(*personas)


def _name_taken(name: str, registry: Registry) -> str:
    # What has this name already, such as "the role coder". Requests name models, roles and personas in the same way.
    if name in registry.personas:
        return f"the persona {name}"
    if name in registry.roles:
        return f"the role {name}"
    return f"the model {model}" if (model := registry.model_named(name)) is not None else ""
