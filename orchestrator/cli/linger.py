"""Query and enable lingering: a user's services outlive the last logout. Only this file talks to logind."""

import os
import pwd
import subprocess
from typing import Final

ENABLE: Final = "loginctl enable-linger"
# The error of loginctl for a user without a session whose services do not outlive one
_NO_SESSION: Final = "not logged in or lingering"
_SECONDS: Final = 10.0  # timeout of one loginctl call


def lingers() -> bool | None:
    """Return whether this user's services continue after the last logout; None if logind does not say."""
    user = pwd.getpwuid(os.getuid()).pw_name
    process = _loginctl("show-user", user, "--property=Linger", "--value")
    if process is None:
        return None
    if process.returncode != 0:
        return False if _NO_SESSION in process.stderr else None
    return {"yes": True, "no": False}.get(process.stdout.strip())


def enable_linger() -> str:
    """Keep this user's services running after the last logout. Return why that failed; empty if it did not."""
    process = _loginctl("enable-linger")
    if process is None:
        return "loginctl does not run here"
    return "" if process.returncode == 0 else process.stderr.strip() or f"loginctl ended with {process.returncode}"


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
