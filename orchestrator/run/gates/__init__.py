"""Gates: checks on a step's outputs before another step reads them.

    planned   which gates a step has: their order, where they are a default, when they have nothing to check; pure
    contract  Gate: `check(artifacts, context) -> GateResult`, and its inputs
    pipeline  the code of each gate; runs a step's gates, and says which failure follows
    jobs      has tools and code run as jobs, and reads their verdict
    shares    runs jobs in the sandbox, the one with the least slack first, and shares processor time with engines
    findings  formats findings for the next attempt's prompt
    ruff      ruff's command line and reports, for format, lint and security

Each gate has a file of its name; unit and integration share `tests`. A new gate is a new file and a row in
`planned`. This file imports nothing, so that a report, which only says which gates there are, loads none.
"""
