"""Steps whose model writes Python, turn by turn, in a persistent interpreter in the sandbox.

interpreter  the program in the sandbox: standard library only, nothing of it is trusted
protocol     what goes over the channel, with its schema
outputs      what was printed, whole on disk and cut for the model
budget       calls, tokens and seconds that the code of one attempt may use
asking       llm_call and llm_batch: models that the code asks
host         Host: answers what the code asks for
session      Interpreter: one program, run turn by turn
prompts      what the model is told
attempt      ReplRunner: one try of a `kind: repl` step
"""
