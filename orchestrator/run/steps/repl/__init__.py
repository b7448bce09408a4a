"""Steps whose model writes Python, turn by turn, in a persistent interpreter in the sandbox.

interpreter  the program in the sandbox: standard library only, nothing that it sends is trusted
protocol     the messages between the host and the interpreter, with their schema
outputs      what the code printed: whole on disk, cut for the model
budget       calls, tokens and seconds that the code of one attempt may use
subcalls     llm_call and llm_batch: the models that the code may ask
host         Host: answers the requests of the code
session      Interpreter: one program, run turn by turn
attempt      ReplRunner: one attempt at a step of kind `repl`, and the instructions that its model gets
"""
