# SPDX-License-Identifier: Apache-2.0
"""Messages between the process that has called run() (runner.py) and its ranks (_call.py), over TCP.

Both ends know a key. Each connection begins with a random number from either end; from these and the key come two keys of this
connection, one for each direction. A message is its length (8 bytes, big endian), an HMAC-SHA256 of its number and its bytes
with the sender's key, and its bytes. So nobody else can say something, repeat it, or send it elsewhere. It is not
encrypted."""
import hashlib
import hmac
import os
import socket
import struct

#: Seconds that connecting, sending, or one receive may take.
PATIENCE_S = 30

_NONCE = 32
_HEAD = struct.Struct("!Q32s")
SMALL = 4096  # bytes that a message has at most before the other end has proven anything


class Refused(OSError):
    """The other end has closed the connection, has another key, or does not speak this protocol."""


class Channel:
    """One end of a connection, which it closes. One thread."""

    def __init__(self, peer, key, caller):
        """caller: True on the end that has connected. Like all methods here it raises OSError when the other end
        sends nothing for PATIENCE_S seconds, closes the connection or has another key."""
        self._peer = peer
        peer.settimeout(PATIENCE_S)
        mine = os.urandom(_NONCE)
        peer.sendall(mine)
        other = self._read(_NONCE)
        numbers = mine + other if caller else other + mine
        keys = [hmac.new(key, who + numbers, hashlib.sha256).digest() for who in (b"caller", b"server")]
        self._send_key, self._receive_key = keys if caller else keys[::-1]
        self._sent = self._received = 0

    def _read(self, count):
        data = bytearray()
        while len(data) < count:
            more = self._peer.recv(min(count - len(data), 1 << 20))
            if not more:
                raise Refused("the other end has closed the connection")
            data += more
        return bytes(data)

    @staticmethod
    def _proof(key, number, data):
        return hmac.new(key, struct.pack("!Q", number) + data, hashlib.sha256).digest()

    def send(self, data):
        """Sends bytes."""
        self._peer.sendall(_HEAD.pack(len(data), self._proof(self._send_key, self._sent, data)))
        self._peer.sendall(data)
        self._sent += 1

    def receive(self, most=1 << 62):
        """The bytes of the next message, at most so many. Refused if they are not the other end's."""
        length, proof = _HEAD.unpack(self._read(_HEAD.size))
        if length > most:
            raise Refused(f"a message of {length} bytes")
        data = self._read(length)
        if not hmac.compare_digest(proof, self._proof(self._receive_key, self._received, data)):
            raise Refused("the other end does not know the key")
        self._received += 1
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._peer.close()


def connect(address, key):
    """A channel to an address (host and port). The other end has proven that it knows the key when it has answered the
    first message."""
    return Channel(socket.create_connection(address, timeout=PATIENCE_S), key, True)
