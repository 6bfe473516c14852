# SPDX-License-Identifier: Apache-2.0
"""Plans for proxy.py: which request gets which fault, and what a fault does to the lines of a watch. Pure.

The choice of a storm depends only on its seed, the request's method, resource and name, and how often such a request came,
so the same seed gives the same storm again."""
import json
import random
from urllib.parse import parse_qs, urlsplit

WRITES = ("POST", "PUT", "PATCH", "DELETE")
PIECE = 7      # bytes per piece of a split watch
LONG_S = 40    # longer than a request's time-out

# Responses that the proxy makes itself: status, reason, headers.
REFUSALS = {
    "conflict": (409, "Conflict", {}),
    "expired": (410, "Expired", {}),
    "throttled": (429, "TooManyRequests", {"Retry-After": "1"}),
    "throttled_long": (429, "TooManyRequests", {"Retry-After": str(LONG_S)}),
    "error": (500, "InternalError", {}),
    "unavailable": (503, "ServiceUnavailable", {}),
    "not_found": (404, "NotFound", {}),
}

# Which requests may get which fault.
#   reset  the connection is closed before the request is executed; lost: after it, so the response is lost
#   expired_event  410 as an event of a watch that began with 200
#   torn_*  a watch ends in the middle of a line, of a character, or at any of its first 4,000 bytes
#   silent  a watch stays open and delivers nothing any more
#   no_bookmarks, split, twice  a watch without bookmarks, in pieces of 7 bytes, with each event twice
OF_WRITES = ("conflict", "throttled", "error", "unavailable", "lost", "reset", "slow")
OF_READS = ("throttled", "error", "unavailable", "lost", "reset", "slow")
OF_LISTS = (*OF_READS, "expired")
OF_WATCHES = ("throttled", "error", "unavailable", "reset", "slow", "expired", "not_found", "expired_event", "torn_line",
              "torn_utf8", "torn_bytes", "silent", "no_bookmarks", "split", "twice")


class Asked:
    """A request, as plans get it."""

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
        """The key by which similar requests are counted."""
        return f"{self.method} {self.resource}/{self.name} {self.watch}"


class Storm:
    """All faults but those in `without`, with this chance for each request. Requests of the lease have a third of the
    chance, because an operator that does not lead tests little."""

    def __init__(self, seed, chance=0.3, without=("silent",)):
        self.seed, self.chance, self.without = seed, chance, without

    def choose(self, asked, number):
        dice = random.Random(f"{self.seed} {asked.key()} {number}")
        chance = self.chance / 3 if asked.resource == "leases" else self.chance
        kinds = [kind for kind in asked.faults if kind not in self.without]
        return dice.choice(kinds) if dice.random() < chance else None


class Several:
    """The first of these plans that has a fault for the request."""

    def __init__(self, *plans):
        self.plans = plans

    def choose(self, asked, number):
        return next((fault for plan in self.plans if (fault := plan.choose(asked, number))), None)


class Only:
    """One fault, for the first `times` requests for which meant() is true."""

    def __init__(self, kind, times, meant=lambda asked: True):
        self.kind, self.left, self.meant = kind, times, meant

    def choose(self, asked, _):
        kinds = (*asked.faults, "throttled_long")
        if self.left > 0 and self.kind in kinds and self.meant(asked):
            self.left -= 1
            return self.kind
        return None


class Watch:
    """Applies a fault to the lines of a watch. feed() returns what to send of a line, in pieces. Afterwards `end` says how
    the watch ends: None (it continues), "over", "cut" or "silent". `struck`: the fault has happened."""

    def __init__(self, fault, dice):
        self.fault, self.end, self.struck = fault, None, False
        self.left = dice.randrange(3)              # events before the fault
        self.room = dice.randrange(1, 4000)        # bytes before torn_bytes cuts the watch
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
        """Drops a bookmark, except the one that ends a streamed list."""
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
