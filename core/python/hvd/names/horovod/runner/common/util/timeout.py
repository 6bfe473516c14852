# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.common.util.timeout"""
import time


class TimeoutException(Exception):
    """A time limit has passed."""

    def __init__(self, message):
        self.message = message
        super().__init__(message)


class Timeout:
    """A time limit in seconds. message: a text with {activity} in it."""

    def __init__(self, timeout, message):
        self._timeout, self._message = timeout, message
        self._end = time.monotonic() + timeout

    def remaining(self):
        """Seconds, 0 or more."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self):
        """Whether the limit has passed."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity):
        """Raises TimeoutException if the limit has passed."""
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip(". ")
            raise TimeoutException(f"{text}. Timeout after {self._timeout} seconds.")
