"""Ask logind whether what this user starts outlives the last logout, and have it so. Only this file asks logind."""

import os
import pwd
import subprocess
from typing import Final

ENABLE: Final = "loginctl enable-linger"
_NO_SESSION: Final = "not logged in or lingering"
"""What loginctl says of a user who has no session, and whose services do not outlive one."""
_SECONDS: Final = 10.0


def lingers() -> bool | None:
    """Return whether the services of this user go on after the last logout; None if logind does not say it."""
    user = pwd.getpwuid(os.getuid()).pw_name
    done = _loginctl("show-user", user, "--property=Linger", "--value")
    if done is None:
        return None
    if done.returncode != 0:
        return False if _NO_SESSION in done.stderr else None
    return {"yes": True, "no": False}.get(done.stdout.strip())


def enable_linger() -> str:
    """Have the services of this user go on after the last logout. Return why that did not work; empty if it did."""
    done = _loginctl("enable-linger")
    if done is None:
        return "loginctl does not run here"
    return "" if done.returncode == 0 else done.stderr.strip() or f"loginctl ended with {done.returncode}"


def _loginctl(*words: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(  # noqa: S603 (fixed words and the name of this user)
            ["loginctl", *words],  # noqa: S607 (systemd's own, wherever the system has it)
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
