"""Add and retire personas while runs go on, and keep them in the journal of the state folder.

A persona takes effect with the next choice: no model is loaded for it, and an engine computes the prefix that a role
and the persona make once, for the first of the requests that begin with it. A persona that is retired stays readable
for the runs that name it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from orchestrator.errors import InputError, Problem
from orchestrator.run.journal import Journal, JournalError, PersonaUse
from orchestrator.task.events import PlanPersona
from orchestrator.task.personas import (
    MAX_IN_USE,
    MadePersona,
    Placed,
    in_use,
    name_taken,
    persona_problems,
    place_persona,
    retired,
    unknown_persona,
)
from registry.models import Maker, Persona, Registry

MADE_BY_ITSELF: Final[Collection[Maker]] = ("plan", "memory")
"""The makers whose personas are retired when they bring nothing. Personas of users are theirs to retire."""
LEAST_ATTEMPTS: Final = 20
"""Such a persona is judged by its outcomes once it has had so many attempts."""
USELESS_MARGIN: Final = 0.1
"""Such a persona is useless if its share of successes is lower than that of all attempts of its roles by so much."""
UNUSED_DAYS: Final = 30.0
"""Such a persona that was not used for so many days is useless too."""
DAY_SECONDS: Final = 86_400.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaProposal:
    """A persona that a user proposes, or the memory."""

    name: str
    text: str
    description: str = ""
    by: str = ""
    maker: Maker = "user"
    distinct: bool = False
    """Whether it is to be added even if it says nearly the same as another one."""


def checked_proposal(
    proposal: PersonaProposal, made: Collection[MadePersona], registry: Registry, at: float
) -> tuple[Placed, MadePersona | None]:
    """Return where a proposed persona goes, and the persona itself if it is to be added.

    Raises InputError for one that may not be a persona, whose name is taken, or that there is no room for. Pure.
    """
    name, text = proposal.name, proposal.text.strip()
    if problems := persona_problems(name, text, proposal.description, proposal.maker):
        raise InputError(*problems)
    present = registry.personas_in_use
    if name in present and present[name].text == text:
        return Placed(name, False), None
    if taken := name_taken(name, registry.with_personas(one.persona for one in in_use(made).values())):
        accepted = "another name, or the same text" if taken.startswith("the persona") else "another name"
        raise InputError(Problem("persona.name", f"{name!r} is the name of {taken} already", accepted))
    place = place_persona(name, text, present, proposal.maker)
    if not place.new and not proposal.distinct:
        return place, None
    if len(in_use(made)) >= MAX_IN_USE:
        what = f"there are {MAX_IN_USE} personas that were made at run time"
        raise InputError(Problem("persona", what, "another one after one of them is retired"))
    about = proposal.description
    new = MadePersona(name=name, text=text, description=about, maker=proposal.maker, by=proposal.by, made=at)
    return Placed(name, True), new


def checked_retirement(name: str, made: Collection[MadePersona], registry: Registry, at: float) -> MadePersona:
    """Return a persona as it is when it is retired. Raises InputError for one that cannot be. Pure."""
    used = in_use(made)
    if name in used:
        return retired(used[name], at, "by a user")
    if name in registry.personas_in_use:
        what = f"the persona {name} stands in the registry's file of personas"
        accepted = f"one that was made at run time: {', '.join(sorted(used)) or 'there are none'}; or edit that file"
        raise InputError(Problem("persona", what, accepted))
    raise InputError(unknown_persona(name, used))


def useless_personas(
    made: Iterable[MadePersona], uses: Collection[PersonaUse], shares: Callable[[str], float], now: float
) -> list[MadePersona]:
    """Return the personas of plans and of the memory that are to be retired since they bring nothing. Pure.

    They are returned as they are then. `shares` returns the share of attempts that succeed, by role.
    """
    gone = []
    for one in in_use(made).values():
        own = [use for use in uses if use.persona == one.name]
        ended = sum(use.succeeded + use.failed for use in own)
        last = max([one.made, *(use.last for use in own)])
        if one.maker not in MADE_BY_ITSELF:
            continue
        if now - last > UNUSED_DAYS * DAY_SECONDS:
            gone.append(retired(one, now, f"not used for {UNUSED_DAYS:g} days"))
        elif ended >= LEAST_ATTEMPTS:
            share = sum(use.succeeded for use in own) / ended
            usual = sum(shares(use.role) * (use.succeeded + use.failed) for use in own) / ended
            if share < usual - USELESS_MARGIN:
                why = f"{share:.0%} of {ended} attempts succeeded, of others by these roles {usual:.0%}"
                gone.append(retired(one, now, why))
    return gone


class PersonaBook:
    """The personas that were made at run time, while a journal is open.

    `adopt` is called when they have changed, to put them into force.
    """

    def __init__(self, journal: Journal, made: Iterable[MadePersona], adopt: Callable[[], None]) -> None:
        self._journal = journal
        self._made = {one.name: one for one in made}
        self._adopt = adopt
        self._changing = asyncio.Lock()

    @classmethod
    async def open(cls, journal: Journal, adopt: Callable[[], None]) -> "PersonaBook":
        """Return the book with the personas of the journal. Where these cannot be read, it is empty and says so."""
        try:
            made = await asyncio.to_thread(journal.personas)
        except JournalError as error:
            log.error("the personas that were made at run time cannot be read; none of them can be used",
                      error=str(error))  # fmt: skip
            made = []
        return cls(journal, made, adopt)

    @property
    def made(self) -> tuple[MadePersona, ...]:
        """All of them, the retired ones included."""
        return tuple(self._made.values())

    @property
    def in_use(self) -> list[Persona]:
        """The entries of those that are not retired."""
        return [one.persona for one in in_use(self.made).values()]

    @property
    def kept(self) -> list[Persona]:
        """The entries of all of them."""
        return [one.persona for one in self.made]

    async def add(self, proposal: PersonaProposal, registry: Registry, at: float) -> Placed:
        """Add a persona, unless there is one that says nearly the same. It is durable when this returns.

        Raises InputError as `checked_proposal` does, and JournalError.
        """
        async with self._changing:
            place, new = checked_proposal(proposal, self.made, registry, at)
            if new is not None:
                await asyncio.to_thread(_keep, self._journal, new)
                self._change(new)
        return place

    async def retire(self, name: str, registry: Registry, at: float) -> MadePersona:
        """Retire a persona. Runs that name it go on with it. Raises InputError, JournalError."""
        async with self._changing:
            one = checked_retirement(name, self.made, registry, at)
            await self._retire(one)
        return one

    async def reload(self) -> None:
        """Take up what the journal has, after another process has put rows of it back. Raises JournalError."""
        async with self._changing:
            made = await asyncio.to_thread(self._journal.personas)
            self._made = {one.name: one for one in made}
            self._adopt()

    async def retire_useless(self, shares: Callable[[str], float], at: float) -> list[str]:
        """Retire the personas of plans and the memory that bring nothing; return their names. Raises JournalError."""
        async with self._changing:
            uses = await asyncio.to_thread(self._journal.persona_uses)
            gone = useless_personas(self.made, uses, shares, at)
            for one in gone:
                log.info("a persona is retired that brings nothing", persona=one.name, why=one.why_retired)
                await self._retire(one)
        return [one.name for one in gone]

    def define(self, run: str, personas: Iterable[PlanPersona], at: float) -> list[MadePersona]:
        """Put the personas of a plan into force, and return the new ones, which are still to be stored by `keep`.

        The event of the plan has their texts already. Those that are known stay as they are, retired ones too, unless
        a retired one had another text: it gives its name to the new one. Where there is no room, the persona of a plan
        makes room that was made first.
        """
        new = [
            MadePersona(name=one.name, text=one.text, maker="plan", by=run, made=at)
            for one in personas
            if (known := self._made.get(one.name)) is None or (known.retired is not None and known.text != one.text)
        ]
        if not new:
            return []
        excess = len(in_use(self.made)) + len(new) - MAX_IN_USE
        oldest = sorted((one for one in in_use(self.made).values() if one.maker == "plan"), key=lambda one: one.made)
        changed = [*(retired(one, at, "made room for others") for one in oldest[: max(0, excess)]), *new]
        self._change(*changed)
        return changed

    async def keep(self, changed: Iterable[MadePersona]) -> None:
        """Store personas that `define` has returned. An error is logged: they are in force until the next start."""
        try:
            async with self._changing:
                await asyncio.to_thread(_keep, self._journal, *changed)
        except JournalError as error:
            log.warning("personas of a plan could not be stored", error=str(error))

    async def _retire(self, one: MadePersona) -> None:
        await asyncio.to_thread(self._journal.keep_personas, one)
        self._change(one)

    def _change(self, *changed: MadePersona) -> None:
        self._made |= {one.name: one for one in changed}
        self._adopt()


def add_without_daemon(home: Path, proposal: PersonaProposal, registry: Registry, at: float) -> Placed:
    """Add a persona to a state folder that no process owns. Raises HomeLocked, InputError, JournalError."""
    with Journal.open(home) as journal:
        place, new = checked_proposal(proposal, journal.personas(), registry, at)
        if new is not None:
            _keep(journal, new)
    return place


def retire_without_daemon(home: Path, name: str, registry: Registry, at: float) -> MadePersona:
    """Retire a persona of a state folder that no process owns. Raises HomeLocked, InputError, JournalError."""
    with Journal.open(home) as journal:
        one = checked_retirement(name, journal.personas(), registry, at)
        journal.keep_personas(one)
    return one


def _keep(journal: Journal, *made: MadePersona) -> None:
    """Store personas, and their texts as objects, which the events of attempts name. Blocks on the disk."""
    for one in made:
        journal.put(one.text.encode())
    journal.keep_personas(*made)
