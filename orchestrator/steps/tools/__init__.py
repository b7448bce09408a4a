"""What a step may use beside its model, and the steps that use it.

contract    Tool, ToolResult, ToolError
workspace   Workspace: the texts that one attempt may read, and those it has written
files       read_file, list_files, write_artifact
finding     grep, in the sandbox; search, by bm25 and n-grams (ranking)
running     run_tests and shell, in the sandbox
notes       a run's memory
toolbox     Toolbox: the tools a step was granted, notes among them; checks rights and arguments, tells every call
actions     what the model is told, and what it may answer: a call, pruning, the end; pure
loop        ToolLoop: a model that acts turn by turn, with a context that edits itself
attempt     ToolRunner: one try of a `kind: tool` step
"""
