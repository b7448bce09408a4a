"""Check that a sandbox works: programs in it try to get out or to exceed limits, and print what happened."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.run.sandbox.contract import MIB, JobOutcome, SandboxJob, SandboxLimits
from orchestrator.run.sandbox.errors import SandboxUnavailable

_LIMITS = SandboxLimits(wall=60.0, cpu=20, memory=128 * MIB, processes=8, disk=4 * MIB, niceness=0)
_BEYOND = 256 * MIB
_SECCOMP_FILTER = "2"

_LOOK = """
import ctypes, errno, json, os, sys

def writes(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True

def fills(folder, size):
    files = [f"{folder}/{number}" for number in range(8)]
    try:
        for path in files:
            with open(path, "wb", buffering=0) as file:
                for _ in range(size // 8 // 65536):
                    file.write(bytes(65536))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "no error"

def forks(most):
    children = []
    try:
        while len(children) < most:
            child = os.fork()
            if not child:
                os.read(release[0], 1)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return len(children)

release = os.pipe()
libc = ctypes.CDLL(None, use_errno=True)
libc.unshare(0x10000000)
refusal = errno.errorcode.get(ctypes.get_errno(), "no error")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "uid": os.getuid(),
    "identity": sorted({os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getresuid()}),
    "capabilities": [name for name in ("CapEff", "CapPrm", "CapAmb") if int(status[name], 16)],
    "no_new_privs": status["NoNewPrivs"].strip(),
    "seccomp": status["Seccomp"].strip(),
    "refusal": refusal,
    "interfaces": [line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]],
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "writable": [path for path in (
        "/x", "/usr/x", "/etc/x", "/dev/x", "/proc/self/comm", sys.prefix + "/x") if writes(path)],
    "environment": sorted(set(os.environ) - set(json.loads(sys.argv[1]))),
    "disk": fills("/tmp", int(sys.argv[2])),
    "forks": forks(int(sys.argv[3])),
}))
"""
_TAKE_MEMORY = "block = b'x' * int(__import__('sys').argv[1]); print(len(block))"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    uid: int  # of a program in the sandbox


def containment_job(names: frozenset[str]) -> SandboxJob:
    """Return the job that tries everything but memory. It may see the environment variables `names`."""
    arguments = (json.dumps(sorted(names)), str(2 * _LIMITS.disk), str(3 * _LIMITS.processes))
    return SandboxJob(argv=("python", "-I", "-c", _LOOK, *arguments), limits=_LIMITS)


def memory_job() -> SandboxJob:
    return SandboxJob(argv=("python", "-I", "-c", _TAKE_MEMORY, str(_BEYOND)), limits=_LIMITS)


def evaluate(contained: JobOutcome, memory: JobOutcome) -> ProbeResult:
    """Evaluate the outcomes of `containment_job` and `memory_job`.

    Raises SandboxUnavailable with everything that the sandbox did not prevent.
    """
    if contained.exit_code != 0:
        lines = contained.stderr.decode("utf-8", "replace").strip().splitlines()
        raise SandboxUnavailable(f"a program in it failed ({_end(contained)}): {lines[-1] if lines else 'no message'}")
    facts = json.loads(contained.stdout)
    failures = [*_containment_failures(facts)]
    if memory.exit_code == 0:
        failures.append(f"its memory limit of {_LIMITS.memory} bytes let {_BEYOND} pass")
    if failures:
        raise SandboxUnavailable("; ".join(failures))
    return ProbeResult(facts["uid"])


def _containment_failures(facts: dict[str, object]) -> Iterator[str]:
    if facts["identity"] != [facts["uid"]] or facts["uid"] == 0:
        yield f"its identity is {facts['identity']}, not one unprivileged uid"
    if facts["capabilities"]:
        yield f"it has capabilities: {facts['capabilities']}"
    if facts["no_new_privs"] != "1":
        yield "no_new_privs is off"
    if facts["seccomp"] != _SECCOMP_FILTER or facts["refusal"] != "ENOSYS":
        yield f"the system call filter does not bind (mode {facts['seccomp']}, unshare: {facts['refusal']})"
    if facts["interfaces"] not in ([], ["lo"]):
        yield f"it sees the network: {facts['interfaces']}"
    if facts["writable"]:
        yield f"it can write to {facts['writable']}"
    if facts["environment"]:
        yield f"it sees our environment: {facts['environment']}"
    if facts["disk"] != "ENOSPC":
        yield f"its disk limit does not bind ({facts['disk']})"
    yield from _process_limit_failures(facts["forks"])


def _process_limit_failures(forks: object) -> Iterator[str]:
    # `forks` is how many children the program could start; the program itself counts in the limit. If it could start
    # none, then processes outside the sandbox count too.
    assert isinstance(forks, int), "the program above counts them"
    if forks >= _LIMITS.processes:
        yield f"its limit of {_LIMITS.processes} processes let {forks + 1} pass"
    if forks == 0:
        yield "it cannot start a process: this kernel counts the user's own ones in its limit (Linux before 5.14?)"


def _end(outcome: JobOutcome) -> str:
    if outcome.limit:
        return f"limit: {outcome.limit}"
    return f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
