# SPDX-License-Identifier: Apache-2.0
"""Which requests meet which fault: plans for proxy.py, and what a fault does to the lines of a watch. Pure.

A storm's choice depends on its seed, on the request's line and on how often that line came, and on nothing else: with
the same seed it is the same again, whatever else is under way."""
import json
import random
from urllib.parse import parse_qs, urlsplit

WRITES = ("POST", "PUT", "PATCH", "DELETE")
PIECE = 7      # bytes: what is split comes in such pieces
LONG_S = 40    # longer than a request has time

# Answers of the proxy's own: status, reason, headers.
REFUSALS = {
    "conflict": (409, "Conflict", {}),
    "expired": (410, "Expired", {}),
    "throttled": (429, "TooManyRequests", {"Retry-After": "1"}),
    "throttled_long": (429, "TooManyRequests", {"Retry-After": str(LONG_S)}),
    "error": (500, "InternalError", {}),
    "unavailable": (503, "ServiceUnavailable", {}),
    "not_found": (404, "NotFound", {}),
}

# What may meet whom.
#   reset  the connection ends before the request was carried out; lost: after it, and nobody hears of it
#   expired_event  410 in a watch that began well
#   torn_*  a watch ends in the middle: of a line, of a character, of its first bytes
#   silent  a watch stays open and brings nothing any more
#   no_bookmarks, split, twice  a watch without bookmarks, in pieces of 7 bytes, with each event twice
OF_WRITES = ("conflict", "throttled", "error", "unavailable", "lost", "reset", "slow")
OF_READS = ("throttled", "error", "unavailable", "lost", "reset", "slow")
OF_LISTS = (*OF_READS, "expired")
OF_WATCHES = ("throttled", "error", "unavailable", "reset", "slow", "expired", "not_found", "expired_event", "torn_line",
              "torn_utf8", "torn_bytes", "silent", "no_bookmarks", "split", "twice")


class Asked:
    """A request, as plans see it."""

    def __init__(self, method, target):
        self.method, self.target = method, target
        parts = urlsplit(target)
        self.path, self.query = parts.path, parse_qs(parts.query)
        words = [word for word in self.path.split("/") if word]
        place = 2 if words[:1] == ["api"] else 3      # /api/v1/..., /apis/GROUP/VERSION/...
        if words[place:place + 1] == ["namespaces"] and len(words) > place + 2:
            place += 2
        self.resource = words[place] if len(words) > place else ""
        self.name = words[place + 1] if len(words) > place + 1 else ""
        self.watch = "watch" in self.query
        self.write = method in WRITES
        self.faults = OF_WRITES if self.write else OF_WATCHES if self.watch else OF_READS if self.name else OF_LISTS

    def __str__(self):
        return f"{self.method} {self.path}{' (watch)' if self.watch else ''}"

    def key(self):
        """How requests that are alike are counted."""
        return f"{self.method} {self.resource}/{self.name} {self.watch}"


class Storm:
    """Every fault there is but those in `without`, each request with this chance. Leases have a third of it: an operator
    that does not lead tells little about one that works."""

    def __init__(self, seed, chance=0.3, without=("silent",)):
        self.seed, self.chance, self.without = seed, chance, without

    def choose(self, asked, number):
        dice = random.Random(f"{self.seed} {asked.key()} {number}")
        chance = self.chance / 3 if asked.resource == "leases" else self.chance
        kinds = [kind for kind in asked.faults if kind not in self.without]
        return dice.choice(kinds) if dice.random() < chance else None


class Several:
    """The first of these plans that says something."""

    def __init__(self, *plans):
        self.plans = plans

    def choose(self, asked, number):
        return next((fault for plan in self.plans if (fault := plan.choose(asked, number))), None)


class Only:
    """One fault, for the first `times` requests that `meant` says."""

    def __init__(self, kind, times, meant=lambda asked: True):
        self.kind, self.left, self.meant = kind, times, meant

    def choose(self, asked, _):
        kinds = (*asked.faults, "throttled_long")
        if self.left > 0 and self.kind in kinds and self.meant(asked):
            self.left -= 1
            return self.kind
        return None


class Watch:
    """What becomes of a watch's lines. feed() says what is sent of a line, piece by piece; `end` then how it ends: None
    (it goes on), "over", "cut" or "silent". `struck`: the fault has been met."""

    def __init__(self, fault, dice):
        self.fault, self.end, self.struck = fault, None, False
        self.left = dice.randrange(3)              # events that pass before it
        self.room = dice.randrange(1, 4000)        # bytes
        self.dice = dice

    def strike(self, end=None):
        self.struck, self.end = True, end

    def feed(self, line):
        kind = line[:40].split(b'"', 4)[3:4]
        if self.fault is None or kind == [b"BOOKMARK"] and self.fault not in ("no_bookmarks", "split", "torn_bytes"):
            return [line]
        return getattr(self, self.fault, lambda text: [text])(line)

    def expired_event(self, line):
        if self.left > 0:
            self.left -= 1
            return [line]
        self.strike("over")
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
                  "reason": "Expired", "message": "too old resource version, says the proxy"}
        return [json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"]

    def torn_line(self, line):
        if self.left > 0:
            self.left -= 1
            return [line]
        self.strike("cut")
        return [line[:self.dice.randrange(1, len(line))]]

    def torn_utf8(self, line):
        at = next((i for i, byte in enumerate(line) if byte >= 0xc0), None)
        if at is None:
            return [line]
        self.strike("cut")
        return [line[:at + 1]]

    def torn_bytes(self, line):
        if len(line) < self.room:
            self.room -= len(line)
            return [line]
        self.strike("cut")
        return [line[:self.room]]

    def silent(self, line):
        if self.left > 0:
            self.left -= 1
            return [line]
        self.strike("silent")
        return []

    def no_bookmarks(self, line):
        """But for the one that ends a streamed list."""
        if b'"BOOKMARK"' not in line[:40] or b"initial-events-end" in line:
            return [line]
        self.strike()
        return []

    def split(self, line):
        self.strike()
        return [line[i:i + PIECE] for i in range(0, len(line), PIECE)]

    def twice(self, line):
        self.strike()
        return [line, line]
