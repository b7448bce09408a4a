"""Steps whose model writes Python, turn by turn, for a persistent interpreter in the sandbox.

interpreter  the program in the sandbox: standard library only, not trusted
protocol     messages between host and interpreter
outputs      what the code printed
subcalls     llm_call and llm_batch, within calls, tokens and seconds of one attempt
host         answers the requests of the code
session      one interpreter, run turn by turn
attempt      one attempt at a step of kind `repl`
"""
