"""The tools of steps, and the steps that use them.

contract      Tool, ToolResult, ToolError, ToolServerFailed
workspace     Workspace: the texts that one attempt may read, and those it has written
files         read_file, list_files, write_artifact, search; grep, in the sandbox
search_index  BM25 and n-grams, fused by reciprocal rank
running       run_tests and shell, in the sandbox
notes         the notes that all steps of a run share
servers       ToolServers: the tools of the MCP servers that the configuration names, as mcp:SERVER/TOOL
mcp_client    the connection to one of them, by the SDK, which is only imported for the first of them
toolbox       Toolbox: the tools that a step was granted; checks rights and arguments, and reports every call
actions       the instructions for the model, and what it may answer: a call, pruning, the end; pure
loop          ToolLoop: a model that acts turn by turn, in a context that is kept within its budget
attempt       ToolRunner: one attempt at a step that uses tools; ServedRunner: the same beside MCP servers
"""
