"""The durable record of runs: a state folder with an event table in SQLite and content-addressed objects.

    journal       Journal: events and chats, committed by one writer thread
    reader        JournalReader: what is committed, for anybody and without a lock
    store         the tables in SQLite
    objects       artifacts by SHA-256, and published under their names
    home          Home: the paths of the state folder, its lock, and whether its files are still in their place
    housekeeping  checks for damage, and frees space
    chats, outcomes, errors

This file imports nothing, so that a command that needs a path does not load the database.
"""
