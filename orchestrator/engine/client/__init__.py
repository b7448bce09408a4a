"""What runs in the caller's process.

engine    Engine: sends requests to one process from asyncio
spawn     starts the process, and says how it ended
spinning  how long llama.cpp's threads spin when they wait for each other, set before the process starts
watchdog  notices a process that has stopped working
grammar   turns a JSON Schema into a GBNF grammar
schema    reads the keywords of a JSON Schema
"""
