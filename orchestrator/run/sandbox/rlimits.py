"""Turn a job's limits into hard resource limits (setrlimit(2))."""

from orchestrator.run.sandbox.contract import SandboxLimits

# Bubblewrap's processes outside and inside the namespaces, which count in the job's control group.
OWN_PROCESSES = 2

_OPEN_FILES = 256
_LOCKED_MEMORY = 64 * 1024
_CPU_GRACE = 1
_ADDRESS_SPACE_FACTOR = 8

ResourceLimit = tuple[str, int, int]  # (name of a constant of the module `resource`, soft limit, hard limit)


def resource_limits(limits: SandboxLimits, *, memory_counted: bool, one_more_process: bool) -> list[ResourceLimit]:
    """Return the resource limits of each process.

    `memory_counted`: a control group limits memory; without one, the address space is the limit. `one_more_process`
    allows for bubblewrap's inner process if it has the same uid, or lets a control group that counts processes refuse
    first.
    """
    # Programs reserve far more address space than they use.
    space = limits.memory * (_ADDRESS_SPACE_FACTOR if memory_counted else 1)
    processes = limits.processes + one_more_process
    return [
        ("RLIMIT_CPU", limits.cpu, limits.cpu + _CPU_GRACE),
        ("RLIMIT_AS", space, space),
        ("RLIMIT_NPROC", processes, processes),
        ("RLIMIT_FSIZE", limits.disk, limits.disk),
        ("RLIMIT_NOFILE", _OPEN_FILES, _OPEN_FILES),
        ("RLIMIT_MEMLOCK", _LOCKED_MEMORY, _LOCKED_MEMORY),
        ("RLIMIT_MSGQUEUE", 0, 0),
        ("RLIMIT_RTPRIO", 0, 0),
        ("RLIMIT_NICE", 0, 0),
        ("RLIMIT_CORE", 0, 0),
    ]
