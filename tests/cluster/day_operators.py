# SPDX-License-Identifier: Apache-2.0
"""The two operators of a simulated day (day.py): they are killed, paused and replaced by newer ones with other flags."""
import os
import re
import signal

from api import wait_until
from operators import Operator

FAST = ("--lease-duration", "6", "--lease-renew", "4", "--lease-retry", "1")
DRAIN_LIMIT = 15      # seconds, the largest of the flags below
PAUSED = 9            # seconds: longer than the lease


class Usage:
    """Of all operators of the day together: processor time in seconds; and the most memory of one, in bytes."""

    def __init__(self):
        self.ended, self.now, self.most = 0.0, {}, 0

    def look(self, operator):
        try:
            with open(f"/proc/{operator.process.pid}/stat", encoding="ascii") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{operator.process.pid}/status", encoding="ascii") as f:
                found = re.search(r"VmRSS:\s+(\d+) kB", f.read())
        except (OSError, IndexError):
            return
        self.now[operator.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.most = max(self.most, int(found[1]) * 1024 if found else 0)

    def seconds(self):
        return sum(self.now.values())


class Operators:
    def __init__(self, cluster, dice, share):
        self.cluster, self.dice, self.share = cluster, dice, share
        self.both, self.usage, self.number = [None, None], Usage(), 0
        self.refused = {}     # {operator's name: creates that the API server refused}
        self.failovers = self.upgrades = 0

    def start(self, place):
        self.number += 1
        name = f"operator-{self.number}"
        flags = ["--namespace-share", str(self.share), "--identity", name, "--gang-timeout-max", "60",
                 "--probes", str(self.dice.choice((2, 4, 8))),
                 "--drain-limit", str(self.dice.choice((DRAIN_LIMIT - 5, DRAIN_LIMIT)))]
        self.both[place] = Operator(self.cluster, *FAST, *flags, name=name).start()

    def look(self):
        for one in self.both:
            if not one or not one.alive() or self.stopped(one):
                continue    # a paused one would not answer
            self.usage.look(one)
            refused = sum(one.metric("hvd_api_requests_total", f'method="POST",code="{code}"') or 0 for code in (400, 403, 422))
            self.refused[one.name] = max(refused, self.refused.get(one.name, 0))

    def dead(self):
        """What an operator that ended by itself has said."""
        return next((f"{one.name} has ended:\n{one.tail()}" for one in self.both if one and not one.alive()), None)

    def leading(self, holder):
        """Its place; None if nobody leads."""
        return next((i for i, one in enumerate(self.both) if one and one.name == holder), None)

    def stop(self):
        self.look()
        for one in self.both:
            if one and one.alive():
                one.process.send_signal(signal.SIGCONT)
                one.stop()

    # ---- actors: they yield seconds to wait

    def failover(self, day):
        """Kills or pauses the leader, again and again."""
        while True:
            yield self.dice.uniform(0.7, 1.3) * day.every["failover"]
            if day.settling:
                return
            place = self.leading(day.world.holder)
            if place is None:
                continue
            self.look()
            one = self.both[place]
            day.say(f"{'kills' if self.failovers % 2 == 0 else 'pauses'} {one.name}, which leads")
            self.failovers += 1
            if self.failovers % 2:
                self.both[place] = None
                one.kill()
                yield self.dice.uniform(0, 5)
                self.start(place)
            else:
                one.process.send_signal(signal.SIGSTOP)
                wait_until("the pause", 10, lambda: self.stopped(one), 0.01)    # else upgrade() would end it now
                yield PAUSED
                one.process.send_signal(signal.SIGCONT)

    def upgrade(self, day):
        """Replaces both, one after the other."""
        while True:
            yield self.dice.uniform(0.7, 1.3) * day.every["upgrade"]
            if day.settling:
                return
            for place in (0, 1):
                one = self.both[place]
                while one is None or self.stopped(one):
                    yield 1
                    one = self.both[place]
                self.look()
                day.say(f"replaces {one.name} by another version")
                self.both[place] = None
                one.stop()
                self.start(place)
                yield 3
            self.upgrades += 1

    @staticmethod
    def stopped(one):
        with open(f"/proc/{one.process.pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "T"
