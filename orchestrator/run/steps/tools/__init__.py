"""The tools of steps, and the steps that use them.

contract      Tool, ToolResult, ToolError, ToolServerFailed
workspace     texts that one attempt may read and write
files         read_file, list_files, write_artifact, search, grep
search_index  BM25 and n-grams, fused by reciprocal rank
running       run_tests and shell, in the sandbox
notes         shared by all steps of a run
servers       tools of MCP servers, as mcp:SERVER/TOOL
mcp_client    connection to one MCP server
toolbox       checks rights and arguments, reports every call
actions       what the model may answer: a call, pruning, the end; pure
loop          a model that acts turn by turn
attempt       one attempt with tools
"""
