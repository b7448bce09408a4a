"""The `orchestrator` command: runs tasks, shows what happened and why, and checks the installation."""
