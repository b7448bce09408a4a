"""The words for how a run is carried out, how urgent it is, and how far it has come. Imports nothing."""

from typing import Literal

Mode = Literal["as-planned", "discover", "serial", "direct"]  # "direct": one step that answers the whole request
RunStatus = Literal["queued", "planning", "running", "done", "failed", "cancelled"]
Priority = Literal["interactive", "batch"]
