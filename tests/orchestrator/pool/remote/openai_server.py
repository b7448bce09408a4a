"""A tiny OpenAI-compatible server that does as it is told. Run it; it prints its port. It ends when its stdin does.

POST /NAME/script     a JSON list of answers, for the next requests to /NAME/v1/chat/completions, one each
POST /NAME/refuse     a JSON object: the answer to each request that has this parameter; it uses up none of the script
GET  /NAME/seen       what has been asked so far, and how each request ended
POST /NAME/open       let all go on that wait at a gate
An answer is {"status", "headers", "steps"}; a step is one of
["send", text], ["dribble", text] (byte by byte), ["gate"], ["stall"] (until the client goes),
["reset"] (RST), ["close"] (in the middle of the body), ["echo"] (the request's headers).
"""

import asyncio
import itertools
import json
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

GONE = "closed by the client"


@dataclass
class Play:
    answers: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)


PLAYS: dict[str, Play] = {}
CONNECTIONS = itertools.count(1)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = next(CONNECTIONS)
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            first, *lines = head.decode().rstrip().split("\r\n")
            method, path, _ = first.split()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            name, _, what = path.strip("/").partition("/")
            play = PLAYS.setdefault(name, Play())
            if what == "v1/chat/completions":
                asked = {"headers": headers, "body": json.loads(body), "connection": connection, "ended": None}
                play.seen.append(asked)
                asked["ended"] = await answer(play, asked, reader, writer)
                if asked["ended"] != "answered":
                    return
            else:
                await control(play, f"{method} {what}", body, headers, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def control(play: Play, what: str, body: bytes, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    status, told = 200, b"{}"
    match what:
        case "POST script":
            play.answers += json.loads(body)
        case "POST refuse":
            play.refused.update(json.loads(body))
        case "POST open":
            play.gate.set()
        case "GET seen":
            told = json.dumps(play.seen).encode()
        case "GET v1/models":
            status = 401 if headers.get("authorization") == "Bearer wrong" else 200
        case _:
            status = 404
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(told), told))
    await writer.drain()


async def answer(play: Play, asked: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    nothing: dict[str, Any] = {"status": 500, "steps": [["send", "the script is at its end"]]}
    refused = [play.refused[name] for name in asked["body"] if name in play.refused]
    script = refused[0] if refused else play.answers.pop(0) if play.answers else nothing
    headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **script.get("headers", {})}
    if not script["steps"] or script["steps"][0][0] not in ("reset", "close", "stall"):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {script.get('status', 200)} X\r\n{lines}\r\n".encode())
    gone = asyncio.create_task(reader.read(1))  # a client has nothing more to say: this ends when it goes
    try:
        for step, *arguments in script["steps"]:
            if ended := await go(step, arguments, play, asked, gone, writer):
                return ended
            if gone.done():
                return GONE
        gone.cancel()  # before the client may send its next request, of which nothing must be lost
        await asyncio.wait([gone])
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return "answered"
    except ConnectionError:
        return GONE
    finally:
        gone.cancel()
        await asyncio.wait([gone])


async def go(
    step: str,
    arguments: list[Any],
    play: Play,
    asked: dict[str, Any],
    gone: "asyncio.Task[bytes]",
    writer: asyncio.StreamWriter,
) -> str | None:
    match step:
        case "send":
            await send(writer, arguments[0].encode())
        case "dribble":
            for byte in arguments[0].encode():
                await send(writer, bytes([byte]))
        case "echo":
            await send(writer, json.dumps(asked["headers"]).encode())
        case "gate":
            opened = asyncio.create_task(play.gate.wait())
            await asyncio.wait([gone, opened], return_when=asyncio.FIRST_COMPLETED)
            opened.cancel()
        case "stall":
            await gone
        case "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return "reset"
        case "close":
            return "closed"
    return None


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))
    await writer.drain()
    await asyncio.sleep(0)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    print(server.sockets[0].getsockname()[1], flush=True)
    orphaned = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, orphaned.set)
    await orphaned.wait()


if __name__ == "__main__":
    asyncio.run(main())
