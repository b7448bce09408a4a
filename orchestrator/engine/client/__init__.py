"""The caller's side of an engine process.

engine    Engine: sends requests to one process from asyncio
process   ProcessHandle: the port to a process, here or on another machine
spawn     starts the process, and describes how it ended
watchdog  detects a process that hangs
grammar   turns a JSON Schema into a GBNF grammar
pattern   turns a regular expression into GBNF
schema    parses the keywords of a JSON Schema
"""
