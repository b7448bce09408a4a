"""How much of a state folder a service opens."""

from enum import StrEnum


class Extent(StrEnum):
    """A daemon opens everything. A command without a daemon opens only what it needs, for itself alone."""

    NOTHING = "nothing"  # not even the journal, which may be damaged
    JOURNAL = "journal"  # and no model
    RUNS = "runs"  # all that runs need, once the first job is accepted; interrupted runs wait until they are asked for
    DAEMON = "daemon"  # and what a daemon does by itself: resume runs, keep schedules, finish procedures
