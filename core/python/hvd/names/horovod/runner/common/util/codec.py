# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.common.util.codec: objects as text."""
import base64
import pickle

from hvd import objects


def dumps_base64(obj, to_ascii=True):
    """The pickled object in base64, as str, or as bytes if not to_ascii."""
    encoded = base64.b64encode(objects.dump(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded):
    """The reverse of dumps_base64(). Unpickling can run any code: use it only on text that you trust."""
    return pickle.loads(base64.b64decode(encoded))
