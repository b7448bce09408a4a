"""`python -m benchmarks.daemon.echo SOCKET`: a server that only echoes lines, as a lower bound for response times."""

import asyncio
import sys


async def serve(path: str) -> None:
    """Serve on the Unix socket `path` until the process is killed."""
    server = await asyncio.start_unix_server(_answer, path)
    async with server:
        await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
